"""A moving filter: a filter of one table's reads that looks at single rows too, and moves with them.

    amount > (SELECT avg(amount) FROM orders)      over orders AS o, by the one row of a block
    seen > now() - interval '1 day'                over visits AS v, by the clock

While the single rows stand still it is a filter like any other. When they change, a row of the table is *flipped* if
the filter says one thing of it before and another after: those rows, and no others, are read for the change.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Scan


@dataclass(frozen=True)
class Bound:
    """The filter as a comparison of the row with a value of the single rows: flipped rows lie in a range."""

    value: Expr
    """Over the table's row."""
    operator: str
    bound: Expr
    """Over the single rows."""


@dataclass(frozen=True)
class TemporalFilter:
    """The filter: a condition over a table's row and the rows of these."""

    condition: Expr
    by: tuple[Scan, ...]
    bound: Bound | None = None
    """None where its rows are in no range that an order tells."""

    def over(self, alias: str) -> list[Ref]:
        """The columns of one alias that it looks at."""
        return sorted(ref for ref in self.condition.refs if ref.alias == alias)

    def __str__(self) -> str:
        return f"({self.condition}) by {', '.join(f'{one.table.title} AS {one.alias}' for one in self.by)}"
