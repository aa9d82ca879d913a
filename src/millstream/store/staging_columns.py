"""The columns of staging tables are of built-in types only (see `algebra.text_io`).

A staging table is filled from typed rows by `stage` and read as typed rows by `unstage`. Where no column has a
user-defined type both return what they were given.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.algebra.block import Block
from millstream.algebra.table import quoted
from millstream.algebra.text_io import staged_sql, unstaged_sql
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import Wire


def stages(columns: Sequence[Column]) -> bool:
    """Does one of the columns need another type in a staging table?"""
    return any(column.type.is_user_defined for column in columns)


def columns_of(block: Block) -> list[Column]:
    """The output columns of a block."""
    return [output.column for output in block.outputs]


def stage(columns: Sequence[Column], rows: str, *others: str) -> str:
    """A query whose rows have these columns and others, as a query for a staging table with the same columns."""
    if not stages(columns):
        return rows
    listed = [f"{staged_sql(f's.{quoted(c.name)}', c.type)} AS {quoted(c.name)}" for c in columns]
    return f"SELECT {', '.join([*others, *listed])} FROM ({rows}) AS s"


def unstage(columns: Sequence[Column], relation: str, *others: str) -> str:
    """A staging table that has these columns and others, as a FROM item (without an alias) of typed rows."""
    if not stages(columns):
        return relation
    listed = [f"{unstaged_sql(f's.{quoted(c.name)}', c.type)} AS {quoted(c.name)}" for c in columns]
    return f"(SELECT {', '.join([*others, *listed])} FROM {relation} AS s)"


def received_sql(sent: str, wire: Wire, type_: PgType) -> str:
    """What Spark sent of a value, as a staging table holds it: of a user-defined type, the text that travelled."""
    return sent if type_.output else staged_sql(wire.decode_sql(sent, type_), type_)


def sent_key_sql(staged: str, wire: Wire, type_: PgType) -> str:
    """A key that a staging table holds, as it travels to Spark."""
    return staged if type_.output else wire.key_sql(unstaged_sql(staged, type_))
