"""Temporal filters: a filter of one table's reads that compares with single rows, whose values
change over time.

    amount > (SELECT avg(amount) FROM orders)      over orders AS o, by the one row of a block
    seen > now() - interval '1 day'                over visits AS v, by the clock

While the single rows do not change it is a filter like any other. When they change, a row of the
table *crosses* the filter if the filter was true for it and now is not, or the reverse: these rows,
and no others, are read for the change.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Scan


@dataclass(frozen=True)
class Bound:
    """A temporal filter as a comparison with a value of the single rows: the rows that cross it lie
    in a range.
    """

    value: Expr
    """An expression over the table's row."""
    operator: str
    bound: Expr
    """An expression over the single rows."""


@dataclass(frozen=True)
class TemporalFilter:
    """A condition over the row of a table and the single rows `by`."""

    condition: Expr
    by: tuple[Scan, ...]
    bound: Bound | None = None
    """None if the rows that cross the filter do not lie in a range."""

    def over(self, alias: str) -> list[Ref]:
        """Return the columns of one alias that the condition reads."""
        return sorted(ref for ref in self.condition.refs if ref.alias == alias)

    def __str__(self) -> str:
        by = ", ".join(f"{scan.table.title} AS {scan.alias}" for scan in self.by)
        return f"({self.condition}) by {by}"
