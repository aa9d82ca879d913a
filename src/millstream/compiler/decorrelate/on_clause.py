"""Subqueries in the ON clause of an outer join.

An outer join has a preserved side, whose rows all appear in the result, and a nullable side. Where a subquery goes
depends on the sides that its conjunct refers to:

    the nullable side only       it filters that side before the join
    the preserved side only      it is joined to that side, and ON tests its column
    both sides                   the nullable side is computed for each binding of the preserved side

    a LEFT JOIN b ON b.k = a.k AND EXISTS (SELECT FROM c WHERE c.x > a.x + b.x)
    a LEFT JOIN (D, b where D.k = b.k and a mark by c.x > D.x + b.x) ON a.k, a.x are D's

In a FULL JOIN both sides are preserved: no conjunct may filter one before the join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.expr import Expr, all_of
from millstream.algebra.relation import Filter
from millstream.compiler.decorrelate.attach import Host
from millstream.compiler.decorrelate.bindings import Bindings
from millstream.compiler.decorrelate.clauses import ScopedRows
from millstream.compiler.decorrelate.column_types import outer_column_types
from millstream.compiler.decorrelate.correlation import outer_columns
from millstream.compiler.decorrelate.find import has_subquery
from millstream.compiler.decorrelate.scope import Scope, refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries
from millstream.errors import Unsupported


@dataclass
class OnSide(ScopedRows):
    """One side of a join while its ON clause is built."""

    def owns(self, node: exp.Expression) -> bool:
        """Return True if an expression refers to a column of this side."""
        return any(self.scope.owner(column) is self.scope for column in node.find_all(exp.Column))

    def refers_outside(self, node: exp.Expression) -> bool:
        """Return True if an expression refers to a column of an enclosing query."""
        return self.scope.outer is not None and bool(outer_columns(node, self.scope.outer))

    def resolve_condition(self, node: exp.Expression, subqueries: Subqueries) -> Expr:
        """Resolve a condition over this side; join its subqueries to this side's rows."""
        host = Host(self.rows, self.scope)
        condition = subqueries.condition(node, host)
        self.rows = refuse_unresolved(lambda: host.apply_joins(self.rows))
        return condition


def join_on_subqueries(
    on: Sequence[exp.Expression], preserved: OnSide, nullable: OnSide, subqueries: Subqueries, *, full: bool
) -> list[Expr]:
    """Attach the subqueries of an ON clause to the sides; return the conditions that replace their conjuncts.

    `on` are all conjuncts of the clause. Raise Unsupported if a subquery of a FULL JOIN refers to both sides.
    """
    conditions = list[Expr]()
    over_both = list[exp.Expression]()
    for part in filter(has_subquery, on):
        over_preserved = preserved.owns(part) or preserved.refers_outside(part)
        if over_preserved and nullable.owns(part):
            over_both.append(part)
        elif over_preserved:
            conditions.append(preserved.resolve_condition(part, subqueries))
        elif full:
            conditions.append(nullable.resolve_condition(part, subqueries))
        else:
            condition = nullable.resolve_condition(part, subqueries)
            nullable.rows = Filter(nullable.rows, condition)
    if over_both and full:
        raise Unsupported.construct(
            "a subquery in the ON of a FULL JOIN that is tied to both sides",
            reason="Which rows of either side meet none would have to be told pair by pair.",
            way_round="Write it as the union of a LEFT JOIN and what the other side has besides.",
        )
    if over_both:
        plain = [part for part in on if not has_subquery(part)]
        conditions += _compute_per_binding(plain, over_both, preserved, nullable, subqueries)
    return conditions


def _compute_per_binding(
    plain: Sequence[exp.Expression],
    over_both: Sequence[exp.Expression],
    preserved: OnSide,
    nullable: OnSide,
    subqueries: Subqueries,
) -> list[Expr]:
    """Replace the nullable side by its rows per binding of the preserved side, filtered by the whole ON clause.

    Return the conditions that join the result to the preserved side.
    """
    outer = preserved.scope
    scope = Scope(outer, outer.select, dict(nullable.scope.columns), list(nullable.scope.output))
    columns = dict[Expr, exp.Column]()
    for part in (*plain, *over_both):
        columns.update(outer_columns(part, outer))
    types = outer_column_types(columns.values(), subqueries.ctes, outer, subqueries.builder.types)
    bindings = Bindings(tuple(columns), preserved.rows, types)
    rows = bindings.join_to(nullable.rows, scope, subqueries.builder.fresh("given"))
    side = OnSide(Filter(rows, all_of(map(scope.resolve, plain))) if plain else rows, scope)
    conditions = [side.resolve_condition(part, subqueries) for part in over_both]
    nullable.rows = Filter(side.rows, all_of(conditions))
    return list(bindings.correlations(scope.bindings[value] for value in bindings.values))
