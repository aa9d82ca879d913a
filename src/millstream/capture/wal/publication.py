"""Decide whether a source can be captured from WAL, and check that it still is published.

A source that cannot stays on its triggers, and the reason is recorded for users. One that is
captured from WAL is checked at each tick: a table that was removed from the publication and added
again has other entries in it, and changes made in between were not published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from millstream.algebra.table import quoted
from millstream.catalog.sources import Source
from millstream.observe import log
from millstream.postgres import relations
from millstream.postgres.composed import Printed
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load

_SQL = load("millstream.capture.wal", "publication.sql")

# From these versions on, decoding returns all of a transaction that runs while its table is
# published (4909b38af03).
_SOUND = {15: 13, 16: 9, 17: 5}
_KINDS = {"f": "a foreign table", "v": "a view", "m": "a materialized view"}


def entries(conn: Connection, publication: str, tables: Sequence[int]) -> tuple[int, ...]:
    """Return the oids of the publication's entries for these tables."""
    return tuple(oid for (oid,) in conn.execute(_SQL["entries"], (publication, list(tables))))


def gaps(conn: Connection, publication: str, source: Source) -> list[str]:
    """Return why WAL may lack changes of a source, each reason in words; [] if it holds them all."""
    whole = conn.execute(_SQL["whole"], (publication,)).fetchone()
    if whole is None:
        return ["the publication was dropped"]
    found = [] if whole[0] else ["the publication was altered"]
    if entries(conn, publication, [source.relid, *source.partitions]) != source.published_as:
        found.append("the table was taken out of the publication")
    return found


def without_old_rows(conn: Connection, source: Source) -> list[Name]:
    """Return the tables of a source whose replica identity is not FULL."""
    return [
        Name(*row)
        for row in conn.execute(_SQL["identities"], ([source.relid, *source.partitions],))
    ]


def unpublished(conn: Connection, publication: str, tables: Sequence[int]) -> list[Name]:
    """Return those of these tables that contain rows and are not in the publication."""
    return [Name(*row) for row in conn.execute(_SQL["unpublished"], (list(tables), publication))]


def identities(conn: Connection, tables: Sequence[int]) -> dict[int, str]:
    """Return the replica identity of each table in ALTER TABLE's syntax; DEFAULT if its index was
    dropped.
    """
    return {oid: text or "DEFAULT" for oid, text in conn.execute(_SQL["former"], (list(tables),))}


def set_identities(conn: Connection, wanted: Mapping[int, str]) -> None:
    """Give tables their replica identities."""
    for table in relations.names(conn, list(wanted)):
        alter = sql.SQL("ALTER TABLE {} REPLICA IDENTITY {}")
        conn.execute(alter.format(table.identifier, Printed(wanted[table.oid])))


def restore_identities(conn: Connection, former: Mapping[int, str]) -> None:
    """Give tables back the replica identities they had before we set them.

    One that was set again since is left, and so is one that is not ours to alter any more.
    """
    present = identities(conn, list(former))
    due = {oid: text for oid, text in former.items() if present.get(oid) == "FULL"}
    ours = {table.oid for table in relations.alterable(conn, list(due))}
    set_identities(conn, {oid: text for oid, text in due.items() if oid in ours})
    for table in relations.names(conn, [oid for oid in due if oid not in ours]):
        log.warning("replica identity left", table=str(table), former=due[table.oid])


def obstacle(conn: Connection, source: Source, *, has_slot: bool, may_set_identity: bool) -> str:
    """Return why a source cannot be captured from WAL, with what to do about it; "" if it can."""
    return (
        _of_server(conn, has_slot=has_slot)
        or next((why for table in _tables(conn, source) if (why := _of_table(table))), "")
        or ("" if may_set_identity else _of_identity(conn, source))
    )


def _of_server(conn: Connection, *, has_slot: bool) -> str:
    level, version, slots, senders, may_replicate, may_publish, standby, role = conn.execute(
        _SQL["server"]
    ).fetchall()[0]
    if standby:
        return "The server is a standby: no messages can be written to its WAL."
    if level != "logical":
        return f"wal_level is {level}. Set it to logical and restart the server."
    major, minor = divmod(version, 10000)
    if minor < _SOUND.get(major, 0):
        return (
            f"PostgreSQL {major}.{minor} can lose changes of a table that was just published. Update to "
            f"{major}.{_SOUND[major]}."
        )
    if not may_replicate:
        return f'Role "{role}" may not replicate. ALTER ROLE {quoted(role)} REPLICATION;'
    if not may_publish:
        return f'Role "{role}" may not create publications in this database. Grant it CREATE on the database.'
    if not has_slot and not slots:
        return "All replication slots are taken. Raise max_replication_slots."
    if not has_slot and not senders:
        return "All replication connections are taken. Raise max_wal_senders."
    return ""


@dataclass(frozen=True)
class _TableFacts:
    """What decides whether a table can be captured from WAL."""

    name: Name
    kind: str
    persistence: str
    is_owned: bool
    generated: Sequence[str]
    """Generated columns that are not published."""
    is_subscribed: bool


def _tables(conn: Connection, source: Source) -> list[_TableFacts]:
    rows = conn.execute(_SQL["tables"], ([source.relid, *source.partitions],))
    return [_TableFacts(Name(oid, schema, name), *facts) for oid, schema, name, *facts in rows]


def _of_table(facts: _TableFacts) -> str:
    table = facts.name
    if facts.kind not in ("r", "p"):
        return f"{table} is {_KINDS.get(facts.kind, 'no table')}: logical decoding does not return its rows."
    if facts.persistence != "p":
        return f"{table} is not logged. ALTER TABLE {table} SET LOGGED;"
    if not facts.is_owned:
        return f"{table} belongs to another role: only its owner may publish it."
    if facts.generated:
        listed = ", ".join(f'"{name}"' for name in facts.generated)
        return f"Logical decoding does not return the generated columns of {table} ({listed})."
    if facts.is_subscribed:
        return f"{table} is written by a subscription."
    return ""


def _of_identity(conn: Connection, source: Source) -> str:
    lacking = without_old_rows(conn, source)
    if not lacking:
        return ""
    alters = " ".join(f"ALTER TABLE {table} REPLICA IDENTITY FULL;" for table in lacking)
    return f"WAL does not contain its old rows in full. {alters} Or set auto_replica_identity."
