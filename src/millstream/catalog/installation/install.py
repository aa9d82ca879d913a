"""Install the catalog in a database, upgrade it, and remove it.

Migrations create the catalog, in order, each once; `millstream.migrations` records which have run.
If two processes install at the same time, the second waits for the first, up to a limit, and finds
the catalog installed. An install is one transaction, so there is no half-installed state. It needs
CREATE on the database and no superuser. Millstream uses only schemas that it has created itself,
and checks an existing catalog before it uses anything in it (`trust.py`).

Uninstalling drops our functions and with them every trigger that calls one, on any table, even if
the catalog does not record it. It is one transaction if the server's lock table has room for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources

from psycopg import errors, sql

from millstream.algebra.table import quoted
from millstream.catalog import setting_definitions, slots, stream_tables
from millstream.catalog.installation import event_triggers, identity, roles, trust
from millstream.catalog.target import targets
from millstream.errors import LockNotHad, NameTaken, NoRights, NotInstalled, StillUsed
from millstream.observe.failpoint import failpoint
from millstream.postgres import lock_table, relations
from millstream.postgres.composed import Printed, listed
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load
from millstream.postgres.table_locks import (
    PATIENT,
    Patience,
    read_committed,
    under_lock,
    waiting_at_most,
)

SCHEMAS = ("millstream", "millstream_changes", "millstream_state")
TABLES = (
    "installation", "migrations", "settings", "stream_tables", "sources", "dependencies", "blocks", "refresh_history",
    "definition_digests", "slots", "watermarks", "locks", "upstreams", "guard_secret",
    "leadership", "services", "requests", "setting_definitions", "query_names",
    "verification_failures",
)  # fmt: skip
"""The tables of the catalog, in schema millstream."""
FORMER_TABLES = ("grounds",)
"""Names that tables of the catalog had in earlier versions: `uninstall --forget` also removes an
old catalog.
"""

# The migration that created the table of setting definitions.
_FIRST_WITH_SETTINGS = 18
# The migration that created the functions of event triggers.
_FIRST_WITH_EVENT_TRIGGERS = 19

# The limit of one wait for another install, and of all waits together.
INSTALLING = Patience(lock_timeout=1.0, seconds=30.0)

_SQL = load("millstream.catalog.installation", "install.sql")
_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")


@dataclass(frozen=True)
class Migration:
    """One migration of the catalog, such as `0001_catalog.sql`."""

    version: int
    name: str
    text: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Return all migrations in order. Their numbers have no gaps."""
    files = resources.files("millstream.catalog").joinpath("migrations").iterdir()
    matched = [(match, file) for file in files if (match := _FILE.match(file.name))]
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for match, file in matched
    ]
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError("the numbers of the migrations have a gap")
    return tuple(found)


def known() -> int:
    """Return the catalog version of this Millstream."""
    return migrations()[-1].version


# -- installing ------------------------------------------------------------------------------


def install(conn: Connection, *, patience: Patience = INSTALLING) -> int:
    """Install or upgrade the catalog; return its version.

    Nothing is done twice if it is called again, or by two processes at the same time.
    """
    deadline = time.monotonic() + patience.seconds
    while True:
        try:
            with read_committed(conn), waiting_at_most(conn, patience.lock_timeout):
                found = _install(conn)
                if found >= _FIRST_WITH_SETTINGS:
                    setting_definitions.record(conn)
                roles.grant(conn)
                if found >= _FIRST_WITH_EVENT_TRIGGERS:
                    event_triggers.put(conn)
                return found
        except (errors.UniqueViolation, errors.DuplicateSchema):
            # Another session has created the schemas at the same time, and has committed.
            continue
        except errors.LockNotAvailable as error:
            if time.monotonic() > deadline:
                holders = [row[0] for row in conn.execute(_SQL["writers"])]
                raise LockNotHad.installing(conn.info.dbname, patience.seconds, holders) from error


def _install(conn: Connection) -> int:
    """Apply the missing migrations.

    If two sessions create the schemas, the second waits at the unique index of pg_namespace, and
    then fails. If two sessions upgrade, the second waits for the lock on the table of migrations.
    """
    # Read the schemas before the version: if another install commits in between, its schemas are
    # then read together with their version, and do not look like schemas of another role.
    schemas = conn.execute(_SQL["schemas"]).fetchall()
    found = version(conn)
    if found == known():
        return found
    if found is None:
        _check_room(conn, schemas)
    else:
        conn.execute("LOCK TABLE millstream.migrations IN SHARE ROW EXCLUSIVE MODE")
        found = version(conn) or 0
    if (found or 0) > known():
        raise NotInstalled.newer(found or 0, known())
    lacking = migrations()[found or 0 :]
    for migration in lacking:
        conn.execute(migration.text)
        conn.execute(_SQL["record"], (migration.version, migration.name))
    if any(migration.name == "identity" for migration in lacking):
        _identify(conn)
    _close(conn)
    return known()


def _identify(conn: Connection) -> None:
    """Record the identity of this database, and mark the tables of existing stream tables.

    A catalog without an identity that was restored from a dump has oids of other tables: it gets no
    identity.
    """
    if identity.record_if_intact(conn):
        for target in targets.inspect(conn):
            if target.state == "unmarked":
                targets.mark(conn, target.stream_table_id)


def _close(conn: Connection) -> None:
    """Revoke what default privileges have granted to other roles on our schemas, tables and
    functions.
    """
    for (revoke,) in conn.execute(_SQL["granted"]).fetchall():
        conn.execute(revoke)


def _check_room(conn: Connection, schemas: Sequence[tuple[str, str]]) -> None:
    """Raise unless the names of our schemas are free and the role may create them."""
    for schema, owner in schemas:
        raise NameTaken.by_schema(schema, owner)
    allowed, role, database = conn.execute(_SQL["may_create"]).fetchall()[0]
    if not allowed:
        raise NoRights.to(
            f'install Millstream in database "{database}"',
            role=role,
            grant=f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(role)};",
            reason="It keeps its catalog, change buffers and state in three schemas of their own.",
        )


def version(conn: Connection) -> int | None:
    """Return the version of the catalog in this database; None if there is none.

    The catalog must be trusted.
    """
    if not trust.check(conn):
        return None
    found: int = conn.execute(_SQL["version"]).fetchall()[0][0]
    return found


def require(conn: Connection) -> None:
    """Raise unless the catalog exists, has the version of this Millstream, and was created in this
    database.
    """
    require_version(conn)
    identity.check(conn)


def require_version(conn: Connection) -> None:
    """Raise unless the catalog exists and has the version of this Millstream."""
    found = version(conn)
    if found is None:
        raise NotInstalled.here(conn.info.dbname)
    if found > known():
        raise NotInstalled.newer(found, known())
    if found < known():
        raise NotInstalled.older(found, known())


# -- uninstalling ----------------------------------------------------------------------------


def captured(conn: Connection) -> list[int]:
    """Return the tables with a trigger that calls one of our functions, from the system catalogs
    and not from ours.
    """
    return [oid for (oid,) in conn.execute(_SQL["captured"])]


def uninstall(
    conn: Connection,
    *,
    cascade: bool = False,
    forget: bool = False,
    patience: Patience = PATIENT,
    lock_share: float = 0.5,
) -> None:
    """Remove everything: triggers on sources, stream tables with their rows, the three schemas.

    With `cascade`, objects of users that depend on the stream tables, and tables of users in our
    schemas, are dropped too; otherwise they are an error. With `forget`, the stream tables remain
    as ordinary tables, and no oid of the catalog is used. If nothing is installed, nothing happens.

    All of it is one transaction if that takes no more than `lock_share` of the server's free locks.
    Otherwise see `_remove_in_parts`. If the process is killed, the next uninstall removes the rest.
    """
    if version(conn) is None:
        return
    if not forget:
        require(conn)
    found = [slot for (slot,) in conn.execute(_SQL["slots"])]
    if removal_locks(conn) > lock_table.read(conn).room(lock_share):
        _remove_in_parts(conn, cascade, forget, patience)
    tables = relations.alterable(conn, captured(conn))
    under_lock(conn, tables, "ACCESS EXCLUSIVE", lambda: _remove(conn, cascade, forget), patience)
    # Last, since dropping a slot is not undone by a rollback. A slot without a catalog can be
    # dropped later.
    for slot in found:
        slots.drop_on_server(conn, slot)


def _remove(conn: Connection, cascade: bool, forget: bool) -> None:
    # Dropping the functions drops their triggers, also on tables that the role may no longer alter.
    for target in [] if forget else _present(conn):
        _drop_stream_table(conn, target, cascade)
    for (publication,) in conn.execute(_SQL["publications"]).fetchall():
        conn.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(publication)))
    for schema, table, former in [] if forget else conn.execute(_SQL["identities"]).fetchall():
        alter = sql.SQL("ALTER TABLE {} REPLICA IDENTITY {}")
        conn.execute(alter.format(sql.Identifier(schema, table), Printed(former)))
    _check_strangers(conn, cascade)
    for schema in SCHEMAS:
        conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def _present(conn: Connection) -> list[Name]:
    """Return the existing tables of stream tables, newest first. Raise if one is possibly another
    table.
    """
    found = targets.inspect(conn)
    for target in found:
        if target.state in ("another", "unmarked"):
            raise targets.moved(conn, target, stream_tables.get(conn, target.stream_table_id).name)
    return [target.found for target in found if target.found]


def _check_strangers(conn: Connection, cascade: bool) -> None:
    strangers = [
        str(Name(*row)) for row in conn.execute(_SQL["strangers"], ([*TABLES, *FORMER_TABLES],))
    ]
    if strangers and not cascade:
        raise StillUsed.schema("millstream", strangers)


def _drop_stream_table(conn: Connection, table: Name, cascade: bool) -> None:
    drop = sql.SQL("DROP TABLE {} CASCADE" if cascade else "DROP TABLE {}")
    try:
        conn.execute(drop.format(table.identifier))
    except errors.DependentObjectsStillExist as error:
        lines = (error.diag.message_detail or "").splitlines()
        raise StillUsed.by(
            table.title, [line.split(" depends on ")[0] for line in lines]
        ) from error


# -- uninstalling in parts ---------------------------------------------------------------------


def removal_locks(conn: Connection) -> int:
    """Return how many locks are needed at most to remove everything in one transaction."""
    found: int = conn.execute(_SQL["removal_locks"]).fetchall()[0][0]
    return found


def _remove_in_parts(conn: Connection, cascade: bool, forget: bool, patience: Patience) -> None:
    """Remove almost everything, in many transactions; removing the rest then needs few locks.

    Everything is tried first and rolled back, so that an error is raised before the first object is
    removed. The newest stream tables are dropped first, so that readers are dropped before the
    tables that they read.
    """
    _check_strangers(conn, cascade)
    if not forget:
        for table in _present(conn):
            # Raised by the trial itself, at its end.
            with suppress(_RolledBack):
                under_lock(
                    conn,
                    [table],
                    "ACCESS EXCLUSIVE",
                    partial(_try_to_drop, conn, table, cascade),
                    patience,
                )
    for part in [] if forget else _stream_table_parts(conn, cascade):
        under_lock(conn, part.tables, "ACCESS EXCLUSIVE", part.remove, patience)
        failpoint("uninstall_stream_table")
    for part in _capture_parts(conn):
        under_lock(conn, part.tables, "ACCESS EXCLUSIVE", part.remove, patience)
        failpoint("uninstall_capture")


@dataclass(frozen=True)
class _Part:
    """The objects that one transaction removes, and the tables that it locks first."""

    tables: Sequence[Name]
    remove: Callable[[], None]


def _stream_table_parts(conn: Connection, cascade: bool) -> Iterator[_Part]:
    for target in targets.inspect(conn):
        remove = partial(_remove_stream_table, conn, target.stream_table_id, cascade)
        yield _Part([target.found] if target.found else [], remove)


def _capture_parts(conn: Connection) -> Iterator[_Part]:
    """Yield the triggers of each table, the functions and the buffer of each source, and the
    remaining state tables.
    """
    for table in relations.alterable(conn, captured(conn)):
        yield _Part([table], partial(_drop_triggers, conn, table))
    for kind, schema, names in conn.execute(_SQL["parts"]).fetchall():
        yield _Part([], partial(_drop_ours, conn, kind, schema, names))


class _RolledBack(Exception):
    """Raised to roll back a trial."""


def _try_to_drop(conn: Connection, table: Name, cascade: bool) -> None:
    _drop_stream_table(conn, table, cascade)
    raise _RolledBack


def _remove_stream_table(conn: Connection, id: int, cascade: bool) -> None:
    """Drop a stream table with its state, and delete its catalog rows."""
    table = targets.ours(conn, id, stream_tables.get(conn, id).name)
    if table:
        _drop_stream_table(conn, table, cascade)
    _remove_states(conn, id)
    stream_tables.remove(conn, id)


def _remove_states(conn: Connection, id: int) -> None:
    """Drop the views and tables of a stream table's blocks."""
    for kind, schema, names in conn.execute(_SQL["states"], (id,)).fetchall():
        _drop_ours(conn, kind, schema, names)


def _drop_triggers(conn: Connection, table: Name) -> None:
    for (trigger,) in conn.execute(_SQL["triggers_on"], (table.oid,)).fetchall():
        conn.execute(
            sql.SQL("DROP TRIGGER {} ON {}").format(sql.Identifier(trigger), table.identifier)
        )


def _drop_ours(conn: Connection, kind: str, schema: str, names: Sequence[str]) -> None:
    """Drop objects of the kind FUNCTION, VIEW or TABLE in one of our schemas, with CASCADE."""
    ours = listed(sql.Identifier(schema, name) for name in names)
    conn.execute(sql.SQL("DROP {} IF EXISTS {} CASCADE").format(Printed(kind), ours))
