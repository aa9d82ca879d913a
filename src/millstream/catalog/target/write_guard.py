"""The guard of a stream table: a trigger that refuses every write but that of a refresh.

It is a statement's trigger BEFORE INSERT, UPDATE, DELETE and TRUNCATE (COPY and MERGE are these),
and fires always, in replicating sessions too. A refresh proves itself by a value that only we can
compute, for this transaction and table:

    refresh   SELECT set_config('millstream.write_permit', millstream_changes.write_permit(table), true)
    guard     is the setting what write_permit() says?  and is the statement nobody's trigger's?

The owner of the table can drop or disable it. That is found before the next refresh: the guard is
put back, and the rows are computed whole, so that what was written meanwhile is repaired by the
difference.
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
    """Return what is wrong with the guards of these tables; nothing for one that is as it was made."""
    return dict(conn.execute(_SQL["wrong"], (list(relids),)).fetchall())


def put(conn: Connection, stream_table_id: int, table: Name) -> None:
    """Make the guard, in place of what there is of it."""
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
    """Let anybody write who has the right."""
    _drop(conn, table)
    conn.execute(_SQL["record"], (False, stream_table_id))


def remove_left_over(conn: Connection) -> None:
    """Remove the guards of tables that are stream tables no longer: anybody may write to them who
    has the right.
    """
    for row in conn.execute(_SQL["left"]).fetchall():
        _drop(conn, Name(*row))


def renew_secret(conn: Connection) -> None:
    """Make another secret: whoever has the dump that a database was restored from can read the old
    one.
    """
    conn.execute(_SQL["new_secret"])


def _drop(conn: Connection, table: Name) -> None:
    # Under whatever name: somebody may have renamed it.
    for (name,) in conn.execute(_SQL["triggers"], (table.oid, TRIGGER)).fetchall():
        conn.execute(
            sql.SQL("DROP TRIGGER {} ON {}").format(sql.Identifier(name), table.identifier)
        )


@contextmanager
def write_permit(conn: Connection, table: str) -> Iterator[None]:
    """Let statements of this block write to a stream table; `table` is its name as SQL writes it."""
    permit = "SELECT set_config('millstream.write_permit', millstream_changes.write_permit(%s::regclass), true)"
    conn.execute(permit, (table,))
    yield
    conn.execute("SELECT set_config('millstream.write_permit', '', true)")
