"""Take out what cancels: per row value, how much more often it stands in the new version.

net = sum(after) - sum(before),  rows with net 0 are gone

To Spark 0 and -0 are one group, of which it shows 0: floating-point values are told apart by their text.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.algebra.block import BlockColumn
from millstream.compiler.lowering.context import AFTER, BEFORE, NET, Lowering

DIFFERENCE = f"{AFTER} - {BEFORE}"


def consolidate_rows(step: str, columns: Sequence[BlockColumn], ctx: Lowering) -> str:
    """Sum the difference per row value."""
    return ctx.step("consolidated", consolidate_select(step, columns))


def consolidate_select(step: str, columns: Sequence[BlockColumn]) -> str:
    listed = "".join(f"{_value(column)}, " for column in columns)
    grouped = f" GROUP BY {', '.join(map(_told_apart, columns))}" if columns else ""
    return f"SELECT {listed}SUM({DIFFERENCE}) AS {NET} FROM {step}{grouped} HAVING SUM({DIFFERENCE}) <> 0"


def difference_rows(step: str, columns: Sequence[BlockColumn], ctx: Lowering) -> str:
    """The difference of each row as it is: enough where only sums follow."""
    listed = "".join(f"{column.name}, " for column in columns)
    return ctx.step("weighed", f"SELECT {listed}{DIFFERENCE} AS {NET} FROM {step}")


def _value(column: BlockColumn) -> str:
    return f"FIRST({column.name}) AS {column.name}" if column.wire.number == "float" else column.name


def _told_apart(column: BlockColumn) -> str:
    return f"CAST({column.name} AS STRING)" if column.wire.number == "float" else column.name
