"""Correlation: the outer columns that a subquery refers to, and the equalities that tie it to them.

A subquery whose only outer references are equalities in its WHERE needs no bindings: its own side
of each equality has the same value, so it groups, partitions and joins by that side.

    (SELECT max(o.total) FROM o WHERE o.customer = c.id)    groups of o by o.customer, joined by c.id = o.customer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr, equated, is_quantified, unwrapped
from millstream.algebra.relation import Relation
from millstream.compiler.clauses.clock import COLUMN
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.clauses.groups.grouping_sets import grouping_sets_of
from millstream.compiler.decorrelate.scope import PLACEHOLDER, Scope
from millstream.compiler.decorrelate.syntax import and_operands
from millstream.errors import Unsupported

_CLOCK_ALIAS, _ = COLUMN


def outer_columns(query: exp.Expression, scope: Scope) -> dict[Expr, exp.Column]:
    """Return the columns of `scope` that a query, or a part of one, refers to, each with one
    reference to it.

    The canonical text never uses one alias both in a query and in an enclosing one, so a column is
    an inner one if the query has its alias.
    """
    inner_aliases = {PLACEHOLDER, _CLOCK_ALIAS, *_aliases(query)}
    merged = {
        column.name for join in query.find_all(exp.Join) for column in join.args.get("using") or ()
    }
    outer = dict[Expr, exp.Column]()
    for column in query.find_all(exp.Column):
        is_inner = column.table in inner_aliases if column.table else column.name in merged
        if is_inner or isinstance(column.this, exp.Star):
            continue
        value = scope.peek(column.table, column.name)
        if value is not None:
            outer.setdefault(value, column)
    return outer


def _aliases(query: exp.Expression) -> list[str]:
    """Return the names under which FROM items and WITH queries are known inside a query."""
    aliases = list[str]()
    for node in query.walk():
        if isinstance(node, exp.Table | exp.Subquery | exp.Lateral | exp.Func | exp.CTE):
            aliases += [node.alias, node.name if isinstance(node, exp.Table) else ""]
    return [alias for alias in aliases if alias]


def is_correlated_by_equalities(select: exp.Select, scope: Scope, aggregates: Aggregates) -> bool:
    """Return True if a SELECT refers to outer columns only on one side of equalities in its WHERE.

    False if the SELECT has a row even when nothing matches (an aggregate without GROUP BY, or with
    an empty grouping set): its own side of the equality has no value for that row.
    """
    group = select.args.get("group")
    where = select.args.get("where")
    has_row_of_nothing = aggregates.group(select) and (
        group is None or grouping_sets_of(group) is not None
    )
    if where is None or has_row_of_nothing:
        return False
    remainder = select.copy()
    others = [
        part.copy()
        for part in and_operands(where.this)
        if not _is_correlation_equality(part, scope)
    ]
    remainder.set("where", exp.Where(this=exp.and_(*others)) if others else None)
    return not outer_columns(remainder, scope)


def _is_correlation_equality(condition: exp.Expression, scope: Scope) -> bool:
    """Return True for `inner = outer`: one side has only outer columns, the other has only inner
    ones.
    """
    if not isinstance(condition, exp.EQ) or is_quantified(condition) or condition.find(exp.Select):
        return False
    left, right = condition.this, condition.expression
    left_is_outer = bool(outer_columns(left, scope))
    right_is_outer = bool(outer_columns(right, scope))
    if left_is_outer == right_is_outer:
        return False
    outer, inner = (left, right) if left_is_outer else (right, left)
    outer_is_pure = all(
        scope.peek(column.table, column.name) is not None for column in outer.find_all(exp.Column)
    )
    return outer_is_pure and inner.find(exp.Column) is not None


def refuse_outer_aggregates(
    columns: Mapping[Expr, exp.Column], query: exp.Expression, scope: Scope, aggregates: Aggregates
) -> None:
    """Raise Unsupported if a subquery contains an aggregate over outer columns only.

    By the SQL standard such an aggregate belongs to the enclosing query.
    """
    for call in query.find_all(exp.Expression):
        if not aggregates.is_call(call):
            continue
        values = [scope.peek(column.table, column.name) for column in call.find_all(exp.Column)]
        if values and all(value in columns for value in values):
            raise Unsupported.construct(
                "an aggregate of the outer query inside a subquery",
                reason="The subquery would have to be computed for each of its values.",
                way_round="Compute the aggregate in a subquery of FROM.",
                node=call,
            )


def correlation_equalities(
    correlations: Sequence[Expr], relation: Relation
) -> list[tuple[Expr, Expr]] | None:
    """Return the (inner, outer) sides of each correlation; None if one is not an equality of such
    sides.

    An inner side has only columns of `relation`, an outer side has none of them.
    """
    own = set(relation.columns)
    pairs = list[tuple[Expr, Expr]]()
    for correlation in correlations:
        sides = equated(correlation) or ()
        inner = [side for side in sides if side.refs and side.refs <= own]
        outer = [side for side in sides if not side.refs & own]
        if len(inner) != 1 or len(outer) != 1:
            return None
        pairs.append((inner[0], outer[0]))
    return pairs


def correlate_with(correlation: Expr, outer: Expr, inner: Expr) -> Expr:
    """Return an equality of two expressions that treats NULLs as `correlation` does."""
    operator = "=" if isinstance(unwrapped(correlation.tree), exp.EQ) else "IS NOT DISTINCT FROM"
    return Expr.parse(f"{inner.sql} {operator} ({outer.sql})")
