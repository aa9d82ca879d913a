"""Rows of millstream.blocks: the chain of blocks that the query of a stream table was split into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog", "blocks.sql")


@dataclass(frozen=True)
class RecordedBlock:
    """A recorded block: its place in the chain, its head, the table of its state, its printed plan."""

    position: int
    name: str
    head: str
    state_relid: int | None
    plan: str
    storage: str | None = None
    """The digest of the statements that created its state."""


def add(conn: Connection, stream_table_id: int, blocks: Sequence[RecordedBlock]) -> None:
    """Replace the recorded blocks of a stream table."""
    conn.execute(_SQL["remove"], (stream_table_id,))
    for block in blocks:
        row = (
            stream_table_id,
            block.position,
            block.name,
            block.head,
            block.state_relid,
            block.plan,
            block.storage,
        )
        conn.execute(_SQL["add"], row)


def of(conn: Connection, stream_table_id: int) -> list[RecordedBlock]:
    """Return the blocks of a stream table, innermost first."""
    return [RecordedBlock(*row) for row in conn.execute(_SQL["of"], (stream_table_id,))]
