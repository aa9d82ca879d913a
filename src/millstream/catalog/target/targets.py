"""The tables of stream tables: is each still the one that Millstream created?

Neither the oid nor the name of a table identifies it: a table can be renamed, and another one get
its name. So a table is dropped or written only if its name, its oid, and its mark are all as
recorded. The mark is a comment on its unique index that names the stream table and the
installation; a dump contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.errors import TargetMoved
from millstream.postgres.composed import printed_statement
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load

State = Literal["ours", "absent", "another", "unmarked"]

_SQL = load("millstream.catalog.target", "targets.sql")


@dataclass(frozen=True)
class Target:
    """The relation with the oid of a stream table's table."""

    stream_table_id: int
    state: State
    found: Name | None


def inspect(conn: Connection, ids: Sequence[int] | None = None) -> list[Target]:
    """Return the current state of the tables of these stream tables, or of all, newest first."""
    rows = conn.execute(_SQL["inspect"], {"ids": None if ids is None else list(ids)})
    return [
        Target(id, state, Name(oid, schema, name) if oid else None)
        for id, state, oid, schema, name in rows
    ]


def ours(conn: Connection, id: int, name: str) -> Name | None:
    """Return the table of a stream table, None if it was dropped; raise TargetMoved if it is
    possibly another table.
    """
    for target in inspect(conn, [id]):
        if target.state == "ours":
            return target.found
        if target.state != "absent":
            raise moved(conn, target, name)
    return None


def moved(conn: Connection, target: Target, name: str) -> TargetMoved:
    """Return the error for another table that has the oid of a stream table's table."""
    if target.state == "unmarked":
        return TargetMoved.unmarked(name, statements(conn, target.stream_table_id))
    return TargetMoved.another(name, str(target.found))


def follow(conn: Connection, id: int) -> bool:
    """Record the current name of the table of a stream table; False if it is possibly another
    table, or the name is taken.
    """
    return conn.execute(_SQL["follow"], (id,)).fetchone() is not None


def mark(conn: Connection, id: int) -> None:
    """Set the mark of a stream table's table."""
    for statement in statements(conn, id):
        conn.execute(printed_statement(statement))


def statements(conn: Connection, id: int) -> list[str]:
    """Return the statements that set it."""
    return [statement for (statement,) in conn.execute(_SQL["marks"], (id,))]
