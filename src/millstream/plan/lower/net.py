"""Take out what cancels: per row value, how much more often it stands in the new version.

net = sum(after) - sum(before),  rows with net 0 are gone
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.plan.lower.context import AFTER, BEFORE, NET, Lowering

DIFFERENCE = f"{AFTER} - {BEFORE}"


def net_rows(step: str, columns: Sequence[str], ctx: Lowering) -> str:
    """Sum the difference per row value."""
    return ctx.step("net", net_select(step, columns))


def net_select(step: str, columns: Sequence[str]) -> str:
    listed = ", ".join(columns)
    grouped = f" GROUP BY {listed}" if columns else ""
    start = f"{listed}, " if columns else ""
    return f"SELECT {start}SUM({DIFFERENCE}) AS {NET} FROM {step}{grouped} HAVING SUM({DIFFERENCE}) <> 0"


def weighed(step: str, columns: Sequence[str], ctx: Lowering) -> str:
    """The difference of each row as it is: enough where only sums follow."""
    return ctx.step("weighed", f"SELECT {', '.join([*columns, f'{DIFFERENCE} AS {NET}'])} FROM {step}")
