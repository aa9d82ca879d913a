"""Make the order of a query total, so that ties do not leave it open which rows LIMIT returns.

    ORDER BY total DESC LIMIT 10    ->    ORDER BY total DESC, 1, 2, 3 LIMIT 10

A stream table has the rows of the second form, so that is what it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.types import Column
from millstream.large_stack import on_large_stack


@on_large_stack
def with_total_order(text: str, columns: Sequence[Column]) -> str:
    """Return a query with LIMIT or DISTINCT ON sorted by all sortable columns last; any other query
    unchanged.
    """
    query = parsed(text)
    if not _depends_on_order(query):
        return text
    sortable = [place for place, column in enumerate(columns, 1) if column.type.comparable]
    terms = [exp.Ordered(this=exp.Literal.number(place), nulls_first=False) for place in sortable]
    order = query.args.get("order") or exp.Order(expressions=[])
    query.set("order", exp.Order(expressions=[*order.expressions, *terms]))
    return printed(query)


def _depends_on_order(query: exp.Expression) -> bool:
    """Return True if the order of a query decides which rows it has, but for FETCH, which may have
    WITH TIES.
    """
    limit = query.args.get("limit") or query.args.get("offset")
    distinct = query.args.get("distinct")
    first_of_each = isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None
    return not isinstance(limit, exp.Fetch) and (limit is not None or first_of_each)
