"""The guard of a stream table: a trigger that refuses every write except those of a refresh.

It is a statement trigger BEFORE INSERT, UPDATE, DELETE and TRUNCATE (COPY and MERGE fire these
too). It is ENABLE ALWAYS, so it fires in replication sessions too. A refresh identifies itself by a
value for this transaction and table that only the service role can compute:

    refresh   SELECT set_config('millstream.write_permit', millstream_changes.write_permit(table), true)
    guard     does the setting equal write_permit(), and is the statement not run by a trigger?

The owner of the table can drop or disable it. This is detected before the next refresh: the guard
is created again, and the rows are computed in full, so that the difference repairs whatever was
written meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import sql

from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.target", "write_guard.sql")

TRIGGER = "millstream_guard"
_TRIGGER = sql.Identifier(TRIGGER)


def broken_guards(conn: Connection, relids: Sequence[int]) -> dict[int, str]:
    """Return what is wrong with the guards of these tables; nothing for a guard that is unchanged."""
    return dict(conn.execute(_SQL["wrong"], (list(relids),)).fetchall())


def put(conn: Connection, stream_table_id: int, table: Name) -> None:
    """Create the guard, or replace it."""
    _drop(conn, table)
    make = sql.SQL(
        "CREATE TRIGGER {} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {} "
        "FOR EACH STATEMENT EXECUTE FUNCTION millstream_changes.guard()"
    )
    conn.execute(make.format(_TRIGGER, table.identifier))
    conn.execute(
        sql.SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(table.identifier, _TRIGGER)
    )
    conn.execute(_SQL["record"], (True, stream_table_id))


def remove(conn: Connection, stream_table_id: int, table: Name) -> None:
    """Remove the guard: any role with the privilege may write again."""
    _drop(conn, table)
    conn.execute(_SQL["record"], (False, stream_table_id))


def remove_left_over(conn: Connection) -> None:
    """Remove the guards of tables that are no longer stream tables: any role with the privilege may
    write to them.
    """
    for row in conn.execute(_SQL["left"]).fetchall():
        _drop(conn, Name(*row))


def renew_secret(conn: Connection) -> None:
    """Replace the secret: the dump from which a database was restored contains the old one."""
    conn.execute(_SQL["new_secret"])


def _drop(conn: Connection, table: Name) -> None:
    # Under any name, since it may have been renamed.
    for (name,) in conn.execute(_SQL["triggers"], (table.oid, TRIGGER)).fetchall():
        conn.execute(
            sql.SQL("DROP TRIGGER {} ON {}").format(sql.Identifier(name), table.identifier)
        )


@contextmanager
def write_permit(conn: Connection, table: str) -> Iterator[None]:
    """Let statements of this block write to a stream table; `table` is its quoted name."""
    permit = "SELECT set_config('millstream.write_permit', millstream_changes.write_permit(%s::regclass), true)"
    conn.execute(permit, (table,))
    yield
    conn.execute("SELECT set_config('millstream.write_permit', '', true)")
