"""Rewrite ARRAY(subquery) by constructs that are maintained.

    ARRAY(SELECT y FROM t WHERE ... ORDER BY z)    (SELECT COALESCE(array_agg(y ORDER BY z), '{}') FROM t WHERE ...)
    ARRAY(any other query)                         (SELECT COALESCE(array_agg(a.c), '{}') FROM (query) AS a (c))
    x = ANY (ARRAY(query))                         x = ANY (query); likewise for <>, <, ... and for ALL

The order of the second form is carried into the call by `subquery_order.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from sqlglot import exp

from millstream.algebra.expr import unwrapped
from millstream.compiler.clauses.groups.grouping import Aggregates

_COMPARING = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def rewrite_array_subqueries(
    tree: exp.Expression, aggregates: Aggregates, makes_rows: Callable[[exp.Expression], bool]
) -> exp.Expression:
    """Rewrite each ARRAY(subquery) of a syntax tree, in place; return the tree."""
    numbers = count()
    wrapper = exp.Paren(this=tree)
    for call in reversed(
        [node for node in wrapper.find_all(exp.Anonymous) if _is_array_subquery(node)]
    ):
        query = unwrapped(call.expressions[0])
        quantifier = _quantifier(call)
        if quantifier is not None:
            quantifier.set("this", exp.Subquery(this=query.copy()))
        elif isinstance(query, exp.Select) and _is_plain(query, aggregates, makes_rows):
            call.replace(exp.Subquery(this=_aggregate(query)))
        else:
            call.replace(exp.Subquery(this=_over(query, f"__ms_array_{next(numbers)}")))
    changed = wrapper.this
    assert isinstance(changed, exp.Expression)
    return changed


def _is_array_subquery(node: exp.Anonymous) -> bool:
    listed = node.expressions
    return (
        str(node.this).upper() == "ARRAY"
        and len(listed) == 1
        and isinstance(unwrapped(listed[0]), exp.Query)
    )


def _quantifier(call: exp.Expression) -> exp.Expression | None:
    """Return the ANY or ALL of a comparison whose whole operand is the array; None if there is
    none.
    """
    around = call.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    if isinstance(around, exp.Any | exp.All) and isinstance(around.parent, _COMPARING):
        return around
    return None


def _is_plain(
    select: exp.Select, aggregates: Aggregates, makes_rows: Callable[[exp.Expression], bool]
) -> bool:
    """Return True if each row of FROM gives one element: no grouping, window, LIMIT or
    set-returning call.
    """
    clauses = any(
        select.args.get(name) for name in ("distinct", "limit", "offset", "with_", "windows")
    )
    items = any(
        item.find(exp.Window) is not None or makes_rows(item) for item in select.expressions
    )
    return (
        not clauses
        and not items
        and select.args.get("from_") is not None
        and not aggregates.group(select)
    )


def _aggregate(select: exp.Select) -> exp.Select:
    """Return a SELECT with its item, in its order, aggregated into an array."""
    found = select.copy()
    item = found.expressions[0]
    value = item.this.copy() if isinstance(item, exp.Alias) else item.copy()
    order = found.args.get("order")
    if order is not None:
        value = exp.Order(this=value, expressions=[key.copy() for key in order.expressions])
    found.set("order", None)
    found.set("expressions", [_or_empty(value)])
    return found


def _over(query: exp.Expression, alias: str) -> exp.Select:
    """Return a SELECT of the array of the rows of a query."""
    named = exp.TableAlias(
        this=exp.to_identifier(alias, quoted=True), columns=[exp.to_identifier("c", quoted=True)]
    )
    source = exp.From(this=exp.Subquery(this=query.copy(), alias=named))
    return exp.Select(expressions=[_or_empty(exp.column("c", alias, quoted=True))], from_=source)


def _or_empty(value: exp.Expression) -> exp.Expression:
    """Return array_agg of a value; the empty array if there are no rows."""
    call = exp.Anonymous(this="array_agg", expressions=[value])
    return exp.Coalesce(this=call, expressions=[exp.Literal.string("{}")])
