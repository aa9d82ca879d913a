"""Subqueries in the ON clause of an outer join.

An outer join has a preserved side, whose rows all appear in the result, and a nullable side. Where
a subquery goes depends on the sides that its conjunct refers to:

    the nullable side only       it filters that side before the join
    the preserved side only      it is joined to that side, and ON tests its column
    both sides                   the nullable side is computed for each binding of the preserved side

    a LEFT JOIN b ON b.k = a.k AND EXISTS (SELECT FROM c WHERE c.x > a.x + b.x)
    a LEFT JOIN (D, b where D.k = b.k and a mark by c.x > D.x + b.x) ON a.k, a.x are D's

In a FULL JOIN both sides are preserved: no conjunct may filter one before the join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.algebra.expr import Expr, all_of
from millstream.algebra.relation import Filter
from millstream.compiler.decorrelate.attach import Host
from millstream.compiler.decorrelate.bindings import Bindings
from millstream.compiler.decorrelate.column_types import outer_column_types
from millstream.compiler.decorrelate.correlation import outer_columns
from millstream.compiler.decorrelate.find import has_subquery
from millstream.compiler.decorrelate.scope import Scope, ScopedRows, refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries
from millstream.errors import Unsupported


@dataclass(frozen=True)
class OnSide(ScopedRows):
    """One side of a join while its ON clause is built."""

    def owns(self, node: exp.Expression) -> bool:
        """Return True if an expression refers to a column of this side."""
        return any(self.scope.owner(column) is self.scope for column in node.find_all(exp.Column))

    def refers_outside(self, node: exp.Expression) -> bool:
        """Return True if an expression refers to a column of an enclosing query."""
        return self.scope.outer is not None and bool(outer_columns(node, self.scope.outer))

    def attach(self, node: exp.Expression, subqueries: Subqueries) -> tuple[OnSide, Expr]:
        """Join the subqueries of a condition to this side; return the side, and the condition over
        it.
        """
        host = Host(self.rows, self.scope)
        condition = subqueries.condition(node, host)
        rows = refuse_unresolved(lambda: host.apply_joins(self.rows))
        return OnSide(rows, self.scope), condition

    def filter(self, node: exp.Expression, subqueries: Subqueries) -> OnSide:
        """Join the subqueries of a condition to this side, and filter it by the condition."""
        side, condition = self.attach(node, subqueries)
        return OnSide(Filter(side.rows, condition), side.scope)


@dataclass(frozen=True)
class OnSides:
    """Both sides of an outer join, and the conditions that take the place of conjuncts of ON with
    subqueries.
    """

    preserved: OnSide
    nullable: OnSide
    conditions: tuple[Expr, ...] = ()

    def attach(self, part: exp.Expression, subqueries: Subqueries, *, full: bool) -> OnSides:
        """Attach the subqueries of one conjunct of ON, which refers to columns of one side only."""
        if self.preserved.owns(part) or self.preserved.refers_outside(part):
            preserved, condition = self.preserved.attach(part, subqueries)
            return replace(self, preserved=preserved, conditions=(*self.conditions, condition))
        if full:
            nullable, condition = self.nullable.attach(part, subqueries)
            return replace(self, nullable=nullable, conditions=(*self.conditions, condition))
        return replace(self, nullable=self.nullable.filter(part, subqueries))

    def refers_to_both(self, part: exp.Expression) -> bool:
        """Return True if a conjunct refers to the nullable side, and to the preserved side or an
        enclosing query.
        """
        return (
            self.preserved.owns(part) or self.preserved.refers_outside(part)
        ) and self.nullable.owns(part)


def join_on_subqueries(
    on: Sequence[exp.Expression], sides: OnSides, subqueries: Subqueries, *, full: bool
) -> OnSides:
    """Attach the subqueries of an ON clause, of which `on` are all conjuncts, to the sides of the
    join.

    Raise Unsupported if a subquery of a FULL JOIN refers to both sides.
    """
    with_subqueries = list(filter(has_subquery, on))
    over_both = [part for part in with_subqueries if sides.refers_to_both(part)]
    for part in with_subqueries:
        if part not in over_both:
            sides = sides.attach(part, subqueries, full=full)
    if over_both and full:
        raise Unsupported.construct(
            "a subquery in the ON of a FULL JOIN that is correlated with both sides",
            reason="Whether a row has a match would have to be decided for every pair of rows.",
            way_round="Write it as a LEFT JOIN, UNION ALL the rows of the other side without a match.",
            node=over_both[0].find(exp.Exists, exp.Subquery, exp.Select),
        )
    if not over_both:
        return sides
    plain = [part for part in on if not has_subquery(part)]
    return _compute_per_binding(plain, over_both, sides, subqueries)


def _compute_per_binding(
    plain: Sequence[exp.Expression],
    over_both: Sequence[exp.Expression],
    sides: OnSides,
    subqueries: Subqueries,
) -> OnSides:
    """Replace the nullable side by its rows per binding of the preserved side, filtered by the
    whole ON clause.
    """
    bindings = _bindings_of(sides.preserved, (*plain, *over_both), subqueries)
    # The columns of the preserved side are outer ones here.
    outer, inner = sides.preserved.scope, sides.nullable.scope
    scope = Scope(outer, outer.select, inner.columns, inner.output)
    rows = bindings.join_to(
        ScopedRows(sides.nullable.rows, scope), subqueries.builder.fresh("given")
    )
    filtered = Filter(rows.rows, all_of(map(rows.scope.resolve, plain))) if plain else rows.rows
    side = OnSide(filtered, rows.scope)
    conditions = list[Expr]()
    for part in over_both:
        side, condition = side.attach(part, subqueries)
        conditions.append(condition)
    nullable = OnSide(Filter(side.rows, all_of(conditions)), inner)
    correlations = bindings.correlations(rows.scope.bindings[value] for value in bindings.values)
    return replace(sides, nullable=nullable, conditions=(*sides.conditions, *correlations))


def _bindings_of(
    preserved: OnSide, conditions: Sequence[exp.Expression], subqueries: Subqueries
) -> Bindings:
    """Return the bindings of the columns of the preserved side that conditions refer to."""
    columns = dict[Expr, exp.Column]()
    for part in conditions:
        columns.update(outer_columns(part, preserved.scope))
    types = outer_column_types(
        columns.values(), subqueries.ctes, preserved.scope, subqueries.builder.types
    )
    return Bindings(tuple(columns), preserved.rows, types)
