"""Subqueries in expressions become joins.

    EXISTS (q)              a mark join: does the row meet anything?
    x IN (q)                the same by x = y; with NULLs about, two more marks tell false from unknown
    x > ALL (q), ANY        the least or greatest of q, joined
    (SELECT max(y) ...)     the groups of q by what ties it to the row, joined: a left join

A correlated subquery is tied to the row by the conjuncts of its WHERE that mention it; they become the join's
condition. What is left of the subquery stands alone, and is kept by a block of its own where it groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, Ref, conjuncts, unwrapped
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Filter,
    Join,
    JoinKind,
    Measure,
    Named,
    Project,
    Relation,
    Scan,
)  # fmt: skip
from millstream.errors import Unsupported
from millstream.sql.clock import COLUMN, untold
from millstream.sql.constants import not_constant
from millstream.sql.grouping import Aggregates, Grouping
from millstream.sql.scope import PLACE, Scope, checked, never_null


@dataclass(frozen=True)
class Cte:
    """A WITH query: as it is written, and what it becomes wherever it is used."""

    node: exp.CTE
    relation: Callable[[], Relation]
    recursive: bool = False


Ctes = Mapping[str, Cte]


def text_with(query: exp.Expression, ctes: Ctes) -> str:
    """The text of a query with all WITH queries it may name, so that the server can type it on its own."""
    copy = query.copy()
    if ctes:
        listed = [cte.node.copy() for cte in ctes.values()]
        copy.set("with_", exp.With(expressions=listed, recursive=any(cte.recursive for cte in ctes.values())))
    return printed(untold(copy))


@dataclass
class Host:
    """The rows that subqueries are joined to, one after the other."""

    relation: Relation | None
    """None where it is still to be made: the groups of a query."""
    scope: Scope
    over: Callable[[Expr], Expr] = lambda expression: expression
    """An expression as the host's rows have it: over groups, keys and aggregates are columns."""
    known: set[str] = field(default_factory=set)
    """Aliases of the subqueries that were joined."""
    joins: list[tuple[Relation, Expr | None, JoinKind, Ref | None]] = field(default_factory=list)

    def join(self, right: Relation, condition: Expr | None, kind: JoinKind, mark: Ref | None = None) -> None:
        self.known |= {ref.alias for ref in ((mark,) if mark else right.columns)}
        inside = {ref.alias for ref in right.columns}
        self.known |= inside
        self.joins.append((right, self.over(condition) if condition else None, kind, mark))

    def built(self, relation: Relation) -> Relation:
        """The rows with all subqueries joined."""
        for right, condition, kind, mark in self.joins:
            relation = Join(relation, right, condition, kind, mark)
        return relation


class Builder(Protocol):
    """What is asked of the builder of queries."""

    aggregates: Aggregates

    def query(self, query: exp.Expression, ctes: Ctes, outer: Scope | None = None) -> Relation: ...

    def from_where(self, select: exp.Select, scope: Scope, ctes: Ctes) -> tuple[Relation, list[Expr]]: ...

    def beside_groups(self, scope: Scope, host: Host, exprs: Sequence[Expr]) -> list[Expr]: ...

    def fresh(self, wanted: str) -> str: ...


@dataclass(frozen=True)
class _Tied:
    """A subquery and the conditions that tie it to the row around it."""

    relation: Relation
    outputs: tuple[Expr, ...]
    ties: tuple[Expr, ...]


class Subqueries:
    """Turns the subqueries of one expression after the other into joins of a host."""

    def __init__(self, builder: Builder, ctes: Ctes) -> None:
        self.builder = builder
        self.ctes = ctes

    def condition(self, node: exp.Expression, host: Host) -> Expr:
        """A condition: where it is a plain IN, unknown is as good as false."""
        node = unwrapped(node)
        if isinstance(node, exp.And):
            parts = [self.condition(part, host) for part in (node.this, node.expression)]
            return Expr.parse(" AND ".join(f"({part.sql})" for part in parts))
        if isinstance(node, exp.In) and node.args.get("query"):
            return self._in(node, host, strict=True)
        return self.expression(node, host)

    def expression(self, node: exp.Expression, host: Host) -> Expr:
        """An expression with its subqueries replaced by columns of joins."""
        wrapper, joined = exp.Paren(this=unwrapped(node).copy()), dict[Ref, Expr]()
        for number, found in enumerate(_subqueries(wrapper)):
            place = Ref(PLACE, str(number))
            joined[place] = self._joined(found, host)
            found.replace(Expr(place.sql).node)
        return host.scope.resolve(wrapper.this).substitute(joined)

    def _joined(self, node: exp.Expression, host: Host) -> Expr:
        if isinstance(node, exp.NEQ) and isinstance(node.expression, exp.All):
            return Expr.parse(f"NOT ({self._in(_as_in(node), host, strict=False).sql})")
        if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
            return self._in(_as_in(node), host, strict=False)
        if isinstance(node, exp.Exists):
            return self._exists(node, host)
        if isinstance(node, exp.In):
            return self._in(node, host, strict=False)
        if isinstance(node, exp.Subquery):
            return self._scalar(node.this, host)
        return self._compared(node, host)

    # -- EXISTS ----------------------------------------------------------------------------

    def _exists(self, node: exp.Exists, host: Host) -> Expr:
        tied = self._tied(node.this, host)
        return self._mark(tied.relation, tied.ties, host)

    def _mark(self, relation: Relation, conditions: Sequence[Expr], host: Host) -> Expr:
        mark = Ref(self.builder.fresh("mark"), "met")
        host.join(relation, _all(conditions), "mark", mark)
        return Expr(mark.sql)

    # -- IN --------------------------------------------------------------------------------

    def _in(self, node: exp.In, host: Host, *, strict: bool) -> Expr:
        left = unwrapped(node.this)
        values = [self.expression(one, host) for one in (left.expressions if isinstance(left, exp.Tuple) else [left])]
        query = node.args["query"].this
        tied = self._tied(query, host)
        equal = [Expr.parse(f"({v.sql}) = ({o.sql})") for v, o in zip(values, tied.outputs, strict=True)]
        met = self._mark(tied.relation, [*tied.ties, *equal], host)
        sure = all(_sure(tied.relation, o) for o in tied.outputs) and all(_sure(host.relation, v) for v in values)
        if strict or sure:
            return met
        unknown = self._unknown(query, values, host)
        return Expr.parse(f"CASE WHEN {met.sql} THEN true WHEN {unknown.sql} THEN CAST(NULL AS BOOLEAN) ELSE false END")

    def _unknown(self, query: exp.Expression, values: list[Expr], host: Host) -> Expr:
        """Where nothing is equal: is there something that may be, for a NULL on either side?"""
        tied = self._tied(query, host)
        if len(values) == 1 and not tied.ties:
            return self._unknown_alone(query, values[0], tied, host)
        pairs = zip(values, tied.outputs, strict=True)
        maybe = [Expr.parse(f"(({v.sql}) = ({o.sql})) IS NOT FALSE") for v, o in pairs]
        return self._mark(tied.relation, [*tied.ties, *maybe], host)

    def _unknown_alone(self, query: exp.Expression, value: Expr, tied: _Tied, host: Host) -> Expr:
        """Of one column and nothing else: is there a NULL, or is the value NULL and there is anything?"""
        parts = []
        if not _sure(tied.relation, tied.outputs[0]):
            nulls = Filter(tied.relation, Expr.parse(f"({tied.outputs[0].sql}) IS NULL"))
            parts.append(self._some(nulls, host))
        if not _sure(host.relation, value):
            parts.append(f"(({value.sql}) IS NULL AND {self._some(self._tied(query, host).relation, host)})")
        return Expr.parse(f"({' OR '.join(parts)})")

    def _some(self, relation: Relation, host: Host) -> str:
        """Whether there is any row: a count that is kept, so that only its coming and going is told on."""
        counted = Aggregate(relation, (), (Measure("m0", Call("count", None)),), self.builder.fresh("n"))
        some = Project(counted, (Named("some", Expr.parse(f'"{counted.alias}"."m0" > 0')),), self.builder.fresh("some"))
        host.join(some, None, "inner")
        return Ref(some.alias, "some").sql

    # -- ANY, ALL --------------------------------------------------------------------------

    def _compared(self, node: exp.Expression, host: Host) -> Expr:
        """x > ALL (q): of the least and the greatest of q, and how many there are."""
        assert isinstance(node, exp.Binary)
        asked = node.expression
        symbol = _SYMBOLS.get(type(node))
        value = self.expression(node.this, host)
        query = unwrapped(asked.this)
        tied = self._tied(query.this if isinstance(query, exp.Subquery) else query, host)
        if symbol is None or tied.ties:
            raise _later("ANY or ALL of a correlated subquery" if tied.ties else "this operator with ANY or ALL")
        bounds = self._bounds(tied, host)
        return Expr.parse(_QUANTIFIED[isinstance(asked, exp.All), symbol].format(x=f"({value.sql})", **bounds))

    def _bounds(self, tied: _Tied, host: Host) -> dict[str, str]:
        output, alias = tied.outputs[0], self.builder.fresh("bounds")
        calls = {"n": Call("count", None), "c": Call("count", output), "least": Call("min", output),
                 "most": Call("max", output)}  # fmt: skip
        measures = tuple(Measure(name, call) for name, call in calls.items())
        host.join(Aggregate(tied.relation, (), measures, alias), None, "inner")
        return {name: Ref(alias, name).sql for name in calls}

    # -- scalar ----------------------------------------------------------------------------

    def _scalar(self, query: exp.Expression, host: Host) -> Expr:
        scope = Scope(host.scope)
        if isinstance(query, exp.Select) and self.builder.aggregates.group(query) and not query.args.get("group"):
            return self._aggregated(query, scope, host)
        tied = self._tied(query, host)
        if not _one_row(tied):
            raise _later(
                "a scalar subquery that may have several rows", "Select an aggregate, or tie it by a unique key."
            )
        value = Project(tied.relation, (Named("value", tied.outputs[0]),), self.builder.fresh("scalar"))
        carried = {ref for tie in tied.ties for ref in tie.refs} & set(tied.relation.columns)
        named = {ref: Named(f"t{n}", Expr(ref.sql)) for n, ref in enumerate(sorted(carried))}
        whole = Project(value.input, (*value.outputs, *named.values()), value.alias)
        renamed = {ref: Expr.ref(value.alias, one.name) for ref, one in named.items()}
        host.join(whole, _all([tie.substitute(renamed) for tie in tied.ties]), "left")
        return Expr.ref(whole.alias, "value")

    def _aggregated(self, query: exp.Select, scope: Scope, host: Host) -> Expr:
        """An aggregate without GROUP BY has one row, whatever there is to aggregate."""
        for word in ("having", "limit", "offset", "with_", "distinct"):
            if query.args.get(word):
                raise _later(f"{word.strip('_').upper()} in an aggregating scalar subquery")
        relation, outside = self.builder.from_where(query, scope, self.ctes)
        inner, outer = self._equalities(outside, relation)
        if has_subquery(query.expressions[0]):
            raise _later("a subquery in the select list of a scalar subquery")
        grouping = Grouping(tuple(inner), self.builder.fresh("scalar"), self.builder.aggregates)
        if COLUMN in scope.columns:
            grouping.known.add(scope.columns[COLUMN].alias)
        item = query.expressions[0]
        value = grouping.over(scope.resolve(item.this if isinstance(item, exp.Alias) else item))
        groups = checked(lambda: grouping.relation(relation))
        # Of nothing, count is 0 and all else NULL: where no group is met, the columns are NULL already.
        counts = {Ref(groups.alias, m.name) for m in groups.measures if m.call.function in _ZERO_OF_NOTHING}
        value = value.substitute({ref: Expr.parse(f"COALESCE({ref.sql}, 0)") for ref in counts} if inner else {})
        same = [Expr.parse(f'"{groups.alias}"."k{n}" = ({one.sql})') for n, one in enumerate(outer)]
        host.join(groups, _all(same), "left" if inner else "inner")
        return self.builder.beside_groups(scope, host, [value])[0]

    def _equalities(self, outside: Sequence[Expr], relation: Relation) -> tuple[list[Expr], list[Expr]]:
        """Each tie as (inside, outside) sides of an equality."""
        inner, outer = list[Expr](), list[Expr]()
        own = set(relation.columns)
        for tie in outside:
            node = unwrapped(tie.node)
            sides = (
                [Expr.of(unwrapped(one)) for one in (node.this, node.expression)] if isinstance(node, exp.EQ) else []
            )
            inside = [side for side in sides if side.refs and side.refs <= own]
            around = [side for side in sides if not side.refs & own]
            if len(inside) != 1 or len(around) != 1:
                raise _later("an aggregating subquery tied to the row by anything but equalities")
            inner, outer = [*inner, inside[0]], [*outer, around[0]]
        return inner, outer

    # -- ties ------------------------------------------------------------------------------

    def _tied(self, query: exp.Expression, host: Host) -> _Tied:
        """The subquery on its own, and its ties to the row around it."""
        query = query.this if isinstance(query, exp.Subquery) else query
        scope = Scope(host.scope)
        if not self._plain(query):
            relation = self.builder.query(query, self.ctes, host.scope)
            return _Tied(relation, tuple(Expr(ref.sql) for ref in relation.columns), ())
        assert isinstance(query, exp.Select)
        relation, outside = self.builder.from_where(query, scope, self.ctes)
        items = [item.this if isinstance(item, exp.Alias) else item for item in query.expressions]
        inner = Host(relation, scope)
        outputs = tuple(self.expression(item, inner) for item in items)
        return _Tied(inner.built(relation), outputs, tuple(outside))

    def _plain(self, query: exp.Expression) -> bool:
        """Nothing but FROM, WHERE and a select list; DISTINCT changes nothing where only existence is asked."""
        if not isinstance(query, exp.Select) or query.args.get("from_") is None or self.builder.aggregates.group(query):
            return False
        extra = any(query.args.get(name) for name in ("limit", "offset", "with_"))
        return not extra and not any(item.find(exp.Window) for item in query.expressions)


def _subqueries(node: exp.Expression) -> list[exp.Expression]:
    """The outermost subqueries in an expression, with the operator that asks about them."""
    found = list[exp.Expression]()
    for child in node.iter_expressions():
        if isinstance(child, exp.Values) and child.find(exp.Select):
            raise not_constant()
        if isinstance(child, exp.Exists | exp.Subquery) or _asks(child):
            found.append(child)
        else:
            found += _subqueries(child)
    return found


def _asks(node: exp.Expression) -> bool:
    """Is it IN, ANY or ALL of a subquery?"""
    if isinstance(node, exp.In):
        return bool(node.args.get("query"))
    if not isinstance(node, exp.Binary) or not isinstance(node.expression, exp.Any | exp.All):
        return False
    return isinstance(unwrapped(node.expression.this), exp.Select | exp.Subquery | exp.SetOperation)


def _as_in(node: exp.Binary) -> exp.In:
    """x = ANY (q) is x IN (q); x <> ALL (q) is its opposite."""
    query = unwrapped(node.expression.this)
    asked = query if isinstance(query, exp.Subquery) else exp.Subquery(this=query.copy())
    return exp.In(this=node.this.copy(), query=asked)


def has_subquery(node: exp.Expression) -> bool:
    """Is there a subquery in it?"""
    return bool(_subqueries(exp.Paren(this=node.copy())))


def _sure(relation: Relation | None, value: Expr) -> bool:
    ref = value.as_ref
    return ref is not None and relation is not None and never_null(relation, ref)


def _one_row(tied: _Tied) -> bool:
    """Is at most one row met? Where the ties, or what is asked of the table itself, name a unique key of it."""
    relation, conditions = tied.relation, list(tied.ties)
    while isinstance(relation, Filter):
        conditions += conjuncts(relation.predicate)
        relation = relation.input
    if isinstance(relation, Project):
        return _single(relation.input)
    if not isinstance(relation, Scan):
        return False
    if relation.table.single or not relation.table.key:
        return relation.table.single
    equal = set[str]()
    for condition in conditions:
        node = unwrapped(condition.node)
        if isinstance(node, exp.EQ):
            sides = [Expr.of(unwrapped(one)) for one in (node.this, node.expression)]
            own = [side for side in sides if relation.alias in side.aliases]
            ref = own[0].as_ref if len(own) == 1 else None
            equal |= {ref.column} if ref is not None else set()
    return set(relation.table.key) <= equal


def _single(relation: Relation) -> bool:
    """Does it never have more than one row, whatever is asked of it?"""
    if isinstance(relation, Filter | Project):
        return _single(relation.input)
    if isinstance(relation, Aggregate):
        return not relation.keys
    if isinstance(relation, Join):
        return relation.kind == "inner" and _single(relation.left) and _single(relation.right)
    return isinstance(relation, Scan) and relation.table.single


def _all(conditions: Sequence[Expr]) -> Expr | None:
    parts = [part for condition in conditions for part in conjuncts(condition)]
    return Expr.parse(" AND ".join(f"({part.sql})" for part in parts)) if parts else None


def _later(what: str, way_round: str = "Write it as a join.") -> Unsupported:
    return Unsupported.construct(what, reason="Millstream does not maintain it yet.", way_round=way_round)


_ZERO_OF_NOTHING = frozenset({"count", "regr_count"})
_SYMBOLS = {exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.EQ: "=", exp.NEQ: "<>"}


def _ordered(every: bool, symbol: str) -> str:
    """x > ALL: compare with the greatest; x > ANY: with the least. NULLs make it unknown unless it is decided."""
    far = "most" if (symbol in (">", ">=")) == every else "least"
    decided, otherwise = ("false", "true") if every else ("true", "false")
    hit = f"NOT ({{x}} {symbol} {{{far}}})" if every else f"{{x}} {symbol} {{{far}}}"
    return (
        f"CASE WHEN {{n}} = 0 THEN {otherwise} WHEN {hit} THEN {decided} "
        f"WHEN {{n}} > {{c}} OR {{x}} IS NULL THEN CAST(NULL AS BOOLEAN) ELSE {otherwise} END"
    )


def _same(every: bool, symbol: str) -> str:
    """x = ALL: all are one and the same, and it is x. x <> ANY is its opposite."""
    decided, otherwise = ("false", "true") if every else ("true", "false")
    return (
        f"CASE WHEN {{n}} = 0 THEN {otherwise} WHEN {{x}} <> {{least}} OR {{x}} <> {{most}} THEN {decided} "
        f"WHEN {{n}} > {{c}} OR {{x}} IS NULL THEN CAST(NULL AS BOOLEAN) ELSE {otherwise} END"
    )


# Is it ALL? and the operator.
_QUANTIFIED = {
    **{(every, symbol): _ordered(every, symbol) for every in (True, False) for symbol in (">", ">=", "<", "<=")},
    (True, "="): _same(True, "="),
    (False, "<>"): _same(False, "<>"),
}
