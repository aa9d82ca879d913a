"""Convert rows to the columns of staging tables, which have built-in types only (see
`algebra.text_io`).

`stage` converts typed rows for a staging table, `unstage` converts them back. If no column has a
user-defined type, both return their argument.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.algebra.block import Block
from millstream.algebra.table import quoted
from millstream.algebra.text_io import staged_sql, unstaged_sql
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import Wire


def stages(columns: Sequence[Column]) -> bool:
    """Return True if a column has another type in a staging table."""
    return any(column.type.is_user_defined for column in columns)


def columns_of(block: Block) -> list[Column]:
    """Return the output columns of a block."""
    return [output.column for output in block.outputs]


def stage(columns: Sequence[Column], rows: str, *others: str) -> str:
    """Convert a query with these typed columns and others to one for a staging table."""
    if not stages(columns):
        return rows
    listed = [f"{staged_sql(f's.{quoted(c.name)}', c.type)} AS {quoted(c.name)}" for c in columns]
    return f"SELECT {', '.join([*others, *listed])} FROM ({rows}) AS s"


def unstage(columns: Sequence[Column], relation: str, *others: str) -> str:
    """Return a staging table with these columns and others as a FROM item of typed rows, without an
    alias.
    """
    if not stages(columns):
        return relation
    listed = [f"{unstaged_sql(f's.{quoted(c.name)}', c.type)} AS {quoted(c.name)}" for c in columns]
    return f"(SELECT {', '.join([*others, *listed])} FROM {relation} AS s)"


def received_sql(sent: str, wire: Wire, type_: PgType) -> str:
    """Convert a value from Spark for a staging table; a user-defined type stays the text that was
    sent.
    """
    return sent if type_.output else staged_sql(wire.decode_sql(sent, type_), type_)


def sent_key_sql(staged: str, wire: Wire, type_: PgType) -> str:
    """Convert a key in a staging table to its wire form for Spark."""
    return staged if type_.output else wire.key_sql(unstaged_sql(staged, type_))
