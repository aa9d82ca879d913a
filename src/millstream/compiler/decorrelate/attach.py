"""The rows that subqueries are joined to, and how a subquery is tied to them.

Each kind of subquery has a file of its own; what they share is here, and what they ask of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, conjuncts
from millstream.algebra.relation import Join, JoinKind, Relation
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.clauses.select_functions import SetReturningCalls
from millstream.compiler.clauses.with_queries import Ctes
from millstream.compiler.decorrelate.bindings import Correlated, correlate_with
from millstream.compiler.decorrelate.scope import Scope


@dataclass
class Host:
    """The rows that subqueries are joined to, one after the other."""

    relation: Relation | None
    """None where it is still to be made: the groups of a query."""
    scope: Scope
    over: Callable[[Expr], Expr] = lambda expression: expression
    """An expression as the host's rows have it: over groups, keys and aggregates are columns."""
    rows: Relation | None = None
    """Of groups: the rows that are grouped."""
    known: set[str] = field(default_factory=set)
    """Aliases of the subqueries that were joined."""
    joins: list[tuple[Relation, Expr | None, JoinKind, Ref | None]] = field(default_factory=list)

    def join(self, right: Relation, condition: Expr | None, kind: JoinKind, mark: Ref | None = None) -> None:
        self.known |= {ref.alias for ref in ((mark,) if mark else right.columns)}
        inside = {ref.alias for ref in right.columns}
        self.known |= inside
        self.joins.append((right, self.over(condition) if condition else None, kind, mark))

    def met(self, right: Relation, correlations: Sequence[Expr], alias: str) -> Expr:
        """Does a row meet anything? A mark."""
        mark = Ref(alias, "met")
        self.join(right, conjunction(correlations), "mark", mark)
        return Expr(mark.sql)

    @property
    def around(self) -> Relation:
        """Rows that have all values of the columns that a subquery may name."""
        found = self.relation or self.rows
        assert found is not None, "a host has rows"
        return found

    def built(self, relation: Relation) -> Relation:
        """The rows with all subqueries joined."""
        for right, condition, kind, mark in self.joins:
            relation = Join(relation, right, condition, kind, mark)
        return relation


@dataclass(frozen=True)
class KeyedSubquery:
    """A subquery whose ties are equalities, each with its (inside, outside)."""

    correlated: Correlated
    pairs: tuple[tuple[Expr, Expr], ...]

    @property
    def relation(self) -> Relation:
        return self.correlated.relation

    @property
    def outputs(self) -> tuple[Expr, ...]:
        return self.correlated.outputs

    @property
    def own(self) -> tuple[Expr, ...]:
        return tuple(own for own, _ in self.pairs)

    @property
    def kind(self) -> JoinKind:
        """Without ties there is the one row of all."""
        return "left" if self.pairs else "inner"

    def condition(self, alias: str, name: str) -> Expr | None:
        """The ties to columns `name`0, `name`1, ... of an alias that have its side of them."""
        correlations = zip(self.correlated.correlations, self.pairs, strict=True)
        return conjunction(
            [
                correlate_with(correlation, value, Expr.ref(alias, f"{name}{n}"))
                for n, (correlation, (_, value)) in enumerate(correlations)
            ]
        )


class SubqueryBuilder(Protocol):
    """What is asked of the builder of queries."""

    aggregates: Aggregates
    sets: SetReturningCalls

    def correlated(self, query: exp.Expression, ctes: Ctes, scope: Scope, around: Relation) -> Correlated: ...

    def from_where(self, select: exp.Select, scope: Scope, ctes: Ctes) -> tuple[Relation, list[Expr]]: ...

    def fresh(self, wanted: str) -> str: ...


class SubqueryJoiner(Protocol):
    """What a kind of subquery asks of whoever turns all kinds into joins."""

    @property
    def builder(self) -> SubqueryBuilder: ...

    @property
    def ctes(self) -> Ctes: ...

    def expression(self, node: exp.Expression, host: Host) -> Expr: ...

    def correlated(self, query: exp.Expression, host: Host) -> Correlated: ...

    def keyed(self, query: exp.Expression, host: Host, *, exact: bool = False) -> KeyedSubquery: ...


def conjunction(conditions: Sequence[Expr]) -> Expr | None:
    """All of them, as one; None of none."""
    parts = [part for condition in conditions for part in conjuncts(condition)]
    return Expr.parse(" AND ".join(f"({part.sql})" for part in parts)) if parts else None
