"""Attach subqueries to the rows of the query that contains them.

A `Host` is a relation that subqueries are joined to, one after the other; each join adds the
columns that stand for the subquery in an expression. The protocols at the end break the recursion
between building a query, its expressions, and the subqueries in these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, conjuncts
from millstream.algebra.relation import Join, JoinKind, Relation
from millstream.algebra.types import PgType
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.clauses.select_functions import SetReturningCalls
from millstream.compiler.clauses.with_queries import Ctes
from millstream.compiler.decorrelate.bindings import Correlated
from millstream.compiler.decorrelate.correlation import correlate_with
from millstream.compiler.decorrelate.scope import Scope, ScopedRows


@dataclass(frozen=True)
class PendingJoin:
    """A join to a subquery, whose left side is not built yet."""

    right: Relation
    condition: Expr | None
    kind: JoinKind
    mark: Ref | None = None


@dataclass
class Host:
    """Collects the joins of subqueries to some rows: a builder, which grows with each subquery."""

    relation: Relation | None
    """None for the groups of a query: they are built after the subqueries that are joined to them.
    """
    scope: Scope
    over: Callable[[Expr], Expr] = lambda expression: expression
    """Rewrites an expression in terms of the host's rows: for groups, keys and aggregates become
    columns.
    """
    ungrouped_rows: Relation | None = None
    """For groups: the rows that are grouped."""
    joined_aliases: set[str] = field(default_factory=set)
    """Aliases of the subqueries joined so far."""
    joins: list[PendingJoin] = field(default_factory=list)

    def join(
        self, right: Relation, condition: Expr | None, kind: JoinKind, mark: Ref | None = None
    ) -> None:
        """Record a join of the host to a subquery."""
        self.joined_aliases |= {ref.alias for ref in right.columns}
        if mark is not None:
            self.joined_aliases.add(mark.alias)
        self.joins.append(
            PendingJoin(right, self.over(condition) if condition else None, kind, mark)
        )

    def mark_join(self, right: Relation, correlations: Sequence[Expr], alias: str) -> Expr:
        """Record a mark join; return its mark, a column that is true if the row has a match."""
        mark = Ref(alias, "met")
        self.join(right, conjunction(correlations), "mark", mark)
        return Expr(mark.sql)

    @property
    def outer_rows(self) -> Relation:
        """Rows that have every value of the columns that a subquery may refer to."""
        rows = self.relation or self.ungrouped_rows
        assert rows is not None, "a host has rows"
        return rows

    def apply_joins(self, relation: Relation) -> Relation:
        """Return a relation with the recorded joins on top, in their order."""
        for join in self.joins:
            relation = Join(relation, join.right, join.condition, join.kind, join.mark)
        return relation


@dataclass(frozen=True)
class KeyedSubquery:
    """A subquery whose correlations are all equalities, each with its (inner, outer) sides."""

    correlated: Correlated
    pairs: tuple[tuple[Expr, Expr], ...]

    @property
    def relation(self) -> Relation:
        return self.correlated.relation

    @property
    def outputs(self) -> tuple[Expr, ...]:
        return self.correlated.outputs

    @property
    def inner_keys(self) -> tuple[Expr, ...]:
        """The inner side of each equality."""
        return tuple(inner for inner, _ in self.pairs)

    @property
    def join_kind(self) -> JoinKind:
        """How an aggregate over it is joined: without correlations it always has its one row."""
        return "left" if self.pairs else "inner"

    def join_condition(self, alias: str, prefix: str) -> Expr | None:
        """Return the correlations, with columns `prefix`0, `prefix`1, ... of an alias as the inner
        sides.
        """
        conditions = list[Expr]()
        for number, (_, outer) in enumerate(self.pairs):
            inner = Expr.ref(alias, f"{prefix}{number}")
            conditions.append(correlate_with(self.correlated.correlations[number], outer, inner))
        return conjunction(conditions)


@dataclass(frozen=True)
class FilteredRows(ScopedRows):
    """The rows of FROM that satisfy WHERE."""

    correlations: tuple[Expr, ...] = ()
    """The conjuncts of WHERE that refer to outer columns: they are not applied yet."""


class SubqueryBuilder(Protocol):
    """The part of the query builder that decorrelation calls."""

    aggregates: Aggregates
    sets: SetReturningCalls

    def decorrelate(
        self, query: exp.Expression, ctes: Ctes, scope: Scope, outer_rows: Relation
    ) -> Correlated:
        """Build a subquery for all bindings."""

    def from_where(self, select: exp.Select, outer: Scope, ctes: Ctes) -> FilteredRows:
        """Build FROM and WHERE of a subquery of `outer`."""

    def fresh(self, wanted: str) -> str:
        """Return an unused alias."""

    def types(self, select: str) -> tuple[PgType, ...]:
        """Return the types of a query's output."""


class SubqueryJoiner(Protocol):
    """The part of `Subqueries` that each kind of subquery calls."""

    @property
    def builder(self) -> SubqueryBuilder: ...

    @property
    def ctes(self) -> Ctes: ...

    def expression(self, node: exp.Expression, host: Host) -> Expr:
        """Resolve an expression; join its subqueries to the host."""

    def decorrelate(self, query: exp.Expression, host: Host) -> Correlated:
        """Decorrelate a subquery."""

    def decorrelate_by_keys(
        self, query: exp.Expression, host: Host, *, exact: bool = False
    ) -> KeyedSubquery:
        """Decorrelate a subquery so that its correlations are equalities."""


def conjunction(conditions: Sequence[Expr]) -> Expr | None:
    """Return the AND of all conditions, flattened; None if there are none."""
    parts = [part for condition in conditions for part in conjuncts(condition)]
    return Expr.parse(" AND ".join(f"({part.sql})" for part in parts), *parts) if parts else None
