"""Subqueries in the ON of an outer join.

over the optional side alone      it filters that side
over one side alone               it is joined to that side, and ON asks for its column
over both                         the optional side is computed for the values that the other gives it

a LEFT JOIN b ON b.k = a.k AND EXISTS (SELECT FROM c WHERE c.x > a.x + b.x)
a LEFT JOIN (D, b with D.k = b.k and a mark by c.x > D.x + b.x) ON a.k, a.x are D's
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.expr import Expr, all_of
from millstream.algebra.relation import Filter, Relation
from millstream.algebra.types import PgType
from millstream.compiler.decorrelate.attach import Host
from millstream.compiler.decorrelate.bindings import Bindings, outer_columns
from millstream.compiler.decorrelate.scope import Scope, refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries
from millstream.errors import Unsupported

Types = Callable[[Iterable[exp.Column]], tuple[PgType, ...]]


@dataclass
class OnSide:
    """One side of a join while its ON is built."""

    rows: Relation
    scope: Scope

    def owns(self, node: exp.Expression) -> bool:
        """Does it have columns that this mentions?"""
        return any(self.scope.owner(column) is self.scope for column in node.find_all(exp.Column))

    def further(self, node: exp.Expression) -> bool:
        """Does it mention a query further out?"""
        return self.scope.outer is not None and bool(outer_columns(node, self.scope.outer))

    def asked(self, node: exp.Expression, subqueries: Subqueries) -> Expr:
        """A condition over this side; its subqueries are joined to it."""
        host = Host(self.rows, self.scope)
        condition = subqueries.condition(node, host)
        self.rows = refuse_unresolved(lambda: host.built(self.rows))
        return condition


def join_on_subqueries(
    on: Sequence[exp.Expression],
    asking: Sequence[exp.Expression],
    kept: OnSide,
    optional: OnSide,
    subqueries: Subqueries,
    types: Types,
    fresh: Callable[[str], str],
    *,
    full: bool,
) -> list[Expr]:
    """What ON asks besides, once its subqueries are joined to the sides; `asking` are its parts that have some."""
    conditions, both = list[Expr](), list[exp.Expression]()
    for part in asking:
        by_kept, by_optional = kept.owns(part) or kept.further(part), optional.owns(part)
        if by_kept and by_optional:
            both.append(part)
        elif by_kept:
            conditions.append(kept.asked(part, subqueries))
        elif full:
            conditions.append(optional.asked(part, subqueries))
        else:
            condition = optional.asked(part, subqueries)
            optional.rows = Filter(optional.rows, condition)
    if both and full:
        raise Unsupported.construct(
            "a subquery in the ON of a FULL JOIN that is tied to both sides",
            reason="Which rows of either side meet none would have to be told pair by pair.",
            way_round="Write it as the union of a LEFT JOIN and what the other side has besides.",
        )
    plain = [part for part in on if not any(part is one for one in asking)]
    return [*conditions, *(_bindings(plain, both, kept, optional, subqueries, types, fresh) if both else ())]


def _bindings(
    plain: Sequence[exp.Expression],
    both: Sequence[exp.Expression],
    kept: OnSide,
    optional: OnSide,
    subqueries: Subqueries,
    types: Types,
    fresh: Callable[[str], str],
) -> list[Expr]:
    """The optional side for each of the values that it is given, with what ON asks of both; and what ties it."""
    scope = Scope(kept.scope, kept.scope.select, dict(optional.scope.columns), list(optional.scope.output))
    columns = {value: one for part in (*plain, *both) for value, one in outer_columns(part, kept.scope).items()}
    bindings = Bindings(tuple(columns), kept.rows, types(columns.values()))
    rows = bindings.joined(optional.rows, scope, fresh("given"))
    side = OnSide(Filter(rows, all_of(map(scope.resolve, plain))) if plain else rows, scope)
    asked = [side.asked(part, subqueries) for part in both]
    optional.rows = Filter(side.rows, all_of(asked))
    return list(bindings.correlations(scope.bindings[value] for value in bindings.values))
