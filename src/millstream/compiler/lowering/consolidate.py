"""Consolidate changes: sum the multiplicities of equal rows, and drop rows whose changes cancel.

net = sum(after) - sum(before),  rows with net 0 are dropped

Spark groups 0 and -0 together and returns 0, so floating-point values are grouped by their text.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.algebra.block import BlockColumn
from millstream.compiler.lowering.context import AFTER, BEFORE, NET, Lowering

DIFFERENCE = f"{AFTER} - {BEFORE}"


def consolidate_rows(step: str, columns: Sequence[BlockColumn], ctx: Lowering) -> str:
    """Add a step with each distinct row and its net count."""
    return ctx.step("consolidated", consolidate_select(step, columns))


def consolidate_select(step: str, columns: Sequence[BlockColumn]) -> str:
    """Return the SELECT of each distinct row and its net count."""
    listed = "".join(f"{_value(column)}, " for column in columns)
    grouped = f" GROUP BY {', '.join(map(_group_key, columns))}" if columns else ""
    return f"SELECT {listed}SUM({DIFFERENCE}) AS {NET} FROM {step}{grouped} HAVING SUM({DIFFERENCE}) <> 0"


def difference_rows(step: str, columns: Sequence[BlockColumn], ctx: Lowering) -> str:
    """Add a step with the net count of each row, equal rows not merged: enough if only sums follow."""
    listed = "".join(f"{column.name}, " for column in columns)
    return ctx.step("weighed", f"SELECT {listed}{DIFFERENCE} AS {NET} FROM {step}")


def _value(column: BlockColumn) -> str:
    return (
        f"FIRST({column.name}) AS {column.name}" if column.wire.number == "float" else column.name
    )


def _group_key(column: BlockColumn) -> str:
    return f"CAST({column.name} AS STRING)" if column.wire.number == "float" else column.name
