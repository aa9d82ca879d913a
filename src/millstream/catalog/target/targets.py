"""The tables of stream tables: is each still the one that we made?

An oid alone proves nothing, nor does a name: a table can be renamed, and another one get its name.
So whatever drops or writes one goes by its name, its oid, and a mark of ours, all three. The mark
is a comment on the unique index that tells the rows apart; it says which stream table of which
installation this is, and a dump takes it along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.errors import TargetMoved
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load

State = Literal["ours", "absent", "another", "unmarked"]

_SQL = load("millstream.catalog.target", "targets.sql")


@dataclass(frozen=True)
class Target:
    """What has the oid of a stream table's table."""

    stream_table_id: int
    state: State
    found: Name | None


def inspect(conn: Connection, ids: Sequence[int] | None = None) -> list[Target]:
    """Return what has become of the tables of these stream tables, or of all, the newest first."""
    rows = conn.execute(_SQL["inspect"], {"ids": None if ids is None else list(ids)})
    return [
        Target(id, state, Name(oid, schema, name) if oid else None)
        for id, state, oid, schema, name in rows
    ]


def ours(conn: Connection, id: int, name: str) -> Name | None:
    """Return the table of a stream table, None when it was dropped; raise TargetMoved when it may
    not be ours.
    """
    for target in inspect(conn, [id]):
        if target.state == "ours":
            return target.found
        if target.state != "absent":
            raise moved(conn, target, name)
    return None


def moved(conn: Connection, target: Target, name: str) -> TargetMoved:
    """Return the error for a table that has the oid of a stream table's table and is not that."""
    if target.state == "unmarked":
        return TargetMoved.unmarked(name, statements(conn, target.stream_table_id))
    return TargetMoved.another(name, str(target.found))


def follow(conn: Connection, id: int) -> bool:
    """Record the present name of the table of a stream table; False if it may not be ours, or its
    name was taken.
    """
    return conn.execute(_SQL["follow"], (id,)).fetchone() is not None


def mark(conn: Connection, id: int) -> None:
    """Mark the table of a stream table as ours."""
    for statement in statements(conn, id):
        conn.execute(statement.encode())


def statements(conn: Connection, id: int) -> list[str]:
    """Return the statements that do so."""
    return [statement for (statement,) in conn.execute(_SQL["marks"], (id,))]
