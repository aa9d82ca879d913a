"""Subqueries in expressions become joins.

    EXISTS (q)              a mark join: does the row meet anything?
    x IN (q)                the same by x = y; with NULLs about, two more marks tell false from unknown
    x > ALL (q), ANY        the least or greatest of q, joined
    (SELECT max(y) ...)     the groups of q by what ties it to the row, joined: a left join

A correlated subquery is tied to the row by the conjuncts of its WHERE that mention it; they become the join's
condition. What is left of the subquery stands alone, and is kept by a block of its own where it groups. One that
mentions the row anywhere else is computed for all the values that it may be given: `given.py`.
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
    Window,
)  # fmt: skip
from millstream.errors import Unsupported
from millstream.sql.carried import of_group
from millstream.sql.clock import COLUMN, asks, untold
from millstream.sql.constants import not_constant
from millstream.sql.given import Tied, bodies, equalities, given_columns, is_bare, parts_of, retied
from millstream.sql.grouping import Aggregates, Grouping
from millstream.sql.scope import PLACE, Scope, checked, never_null
from millstream.sql.sets import Sets


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


class Builder(Protocol):
    """What is asked of the builder of queries."""

    aggregates: Aggregates
    sets: Sets

    def tied(self, query: exp.Expression, ctes: Ctes, scope: Scope, around: Relation) -> Tied: ...

    def from_where(self, select: exp.Select, scope: Scope, ctes: Ctes) -> tuple[Relation, list[Expr]]: ...

    def beside_groups(self, scope: Scope, host: Host, exprs: Sequence[Expr]) -> list[Expr]: ...

    def fresh(self, wanted: str) -> str: ...


@dataclass(frozen=True)
class _Keyed:
    """A subquery whose ties are equalities, each with its (inside, outside)."""

    tied: Tied
    pairs: tuple[tuple[Expr, Expr], ...]

    @property
    def relation(self) -> Relation:
        return self.tied.relation

    @property
    def outputs(self) -> tuple[Expr, ...]:
        return self.tied.outputs

    @property
    def own(self) -> tuple[Expr, ...]:
        return tuple(own for own, _ in self.pairs)

    @property
    def kind(self) -> JoinKind:
        """Without ties there is the one row of all."""
        return "left" if self.pairs else "inner"

    def condition(self, alias: str, name: str) -> Expr | None:
        """The ties to columns `name`0, `name`1, ... of an alias that have its side of them."""
        ties = zip(self.tied.ties, self.pairs, strict=True)
        return _all([retied(tie, value, Expr.ref(alias, f"{name}{n}")) for n, (tie, (_, value)) in enumerate(ties)])


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

    def in_calls(self, node: exp.Expression, host: Host) -> tuple[exp.Expression, dict[Ref, Expr]]:
        """The same with places for the subqueries inside aggregates, and the columns of joins that stand there."""
        wrapper, joined = exp.Paren(this=unwrapped(node).copy()), dict[Ref, Expr]()
        for call in self._calls(wrapper):
            for found in _subqueries(call):
                place = Ref(PLACE, f"in_call_{len(joined)}")
                joined[place] = self._joined(found, host)
                found.replace(Expr(place.sql).node)
        return wrapper.this, joined

    def _calls(self, node: exp.Expression) -> list[exp.Expression]:
        """The aggregate calls of an expression, not those of its subqueries."""
        if self.builder.aggregates.called(node):
            return [node]
        inside = [] if isinstance(node, exp.Query) else list(node.iter_expressions())
        return [call for child in inside for call in self._calls(child)]

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

    def _unknown_alone(self, query: exp.Expression, value: Expr, tied: Tied, host: Host) -> Expr:
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
        if symbol is None:
            raise _later("this operator with ANY or ALL")
        bounds = self._bounds(self._keyed(query, host), host)
        return Expr.parse(_QUANTIFIED[isinstance(asked, exp.All), symbol].format(x=f"({value.sql})", **bounds))

    def _bounds(self, keyed: _Keyed, host: Host) -> dict[str, str]:
        output, alias = keyed.outputs[0], self.builder.fresh("bounds")
        calls = {"n": Call("count", None), "c": Call("count", output), "least": Call("min", output),
                 "most": Call("max", output)}  # fmt: skip
        measures = tuple(Measure(name, call) for name, call in calls.items())
        keys = tuple(Named(f"k{n}", own) for n, own in enumerate(keyed.own))
        host.join(Aggregate(keyed.relation, keys, measures, alias), keyed.condition(alias, "k"), keyed.kind)
        found = {name: Ref(alias, name).sql for name in calls}
        counts = {name: f"COALESCE({found[name]}, 0)" for name in ("n", "c")}
        return {**found, **counts} if keyed.own else found

    # -- scalar ----------------------------------------------------------------------------

    def _scalar(self, query: exp.Expression, host: Host) -> Expr:
        values = self.computed(query, host)
        if values is not None:
            return values[0]
        keyed = self._keyed(query, host, exact=True)
        names = [f"t{n}" for n in range(len(keyed.own))]
        outputs = [Named("value", keyed.outputs[0]), *map(Named, names, keyed.own)]
        whole = Project(keyed.relation, tuple(outputs), self.builder.fresh("scalar"))
        if not (self._aggregates(query) or _limited_to_one(query) or _one_row(keyed)):
            return self._of_several(whole, keyed, host)
        host.join(whole, keyed.condition(whole.alias, "t"), "left")
        return Expr.ref(whole.alias, "value")

    def _of_several(self, rows: Project, keyed: _Keyed, host: Host) -> Expr:
        """The first row, and how many there are: where a row of the result asks for it, PostgreSQL raises its error."""
        by = ", ".join(ref.sql for ref in rows.columns[1:])
        over = f"(PARTITION BY {by})" if by else "()"
        calls = [Named("w0", Expr.parse(f"row_number() OVER {over}")), Named("w1", Expr.parse(f"count(*) OVER {over}"))]
        keys = tuple(Expr(ref.sql) for ref in rows.columns[1:])
        window = Window(rows, keys, tuple(calls), self.builder.fresh("counted"))
        first = Filter(window, Expr.parse(f"{Ref(window.alias, 'w0').sql} = 1"))
        names = ["value", *(f"t{n}" for n in range(len(keyed.own)))]
        outputs = [Named(name, Expr(ref.sql)) for name, ref in zip(names, window.columns, strict=False)]
        alias = self.builder.fresh("scalar")
        host.join(Project(first, (*outputs, Named("n", Expr.ref(window.alias, "w1"))), alias),
                  keyed.condition(alias, "t"), "left")  # fmt: skip
        value, count = Ref(alias, "value").sql, Ref(alias, "n").sql
        return Expr.parse(f"(SELECT {value} FROM generate_series(CAST(1 AS BIGINT), {count}))")

    def _aggregates(self, query: exp.Expression) -> bool:
        """Is it an aggregate without GROUP BY, which has one row whatever there is to aggregate?"""
        if not isinstance(query, exp.Select) or any(map(self.builder.sets.inside, bodies(query))):
            return False
        return self.builder.aggregates.group(query) and not query.args.get("group")

    def computed(self, query: exp.Expression, host: Host) -> list[Expr] | None:
        """The columns of a subquery that has one row for each of the host's, whatever there is; None of any other."""
        if not isinstance(query, exp.Select) or any(map(self.builder.sets.inside, bodies(query))):
            return None
        if is_bare(query, self.builder.aggregates) and not any(map(asks, bodies(query))):
            return [self.expression(item, host) for item in bodies(query)]
        return self._group_join(query, host) if self._aggregates(query) else None

    def _group_join(self, query: exp.Select, host: Host) -> list[Expr] | None:
        """Aggregates over rows that are tied by equalities alone: groups by their ends, joined. None for others."""
        words = ("having", "limit", "offset", "with_", "distinct")
        if any(query.args.get(word) for word in words) or not _only_ties(query, host.scope):
            return None
        if any(has_subquery(item) or given_columns(item, host.scope) for item in bodies(query)):
            return None
        if query.args.get("from_") is None:
            return None
        scope = Scope(host.scope, query)
        relation, outside = self.builder.from_where(query, scope, self.ctes)
        pairs = equalities(outside, relation)
        if pairs is None:
            return None
        return self._joined_groups(query, scope, _Keyed(Tied(relation, (), tuple(outside)), tuple(pairs)), host)

    def _joined_groups(self, query: exp.Select, scope: Scope, keyed: _Keyed, host: Host) -> list[Expr]:
        keys = tuple(dict.fromkeys(keyed.own))
        grouping = Grouping(keys, self.builder.fresh("scalar"), self.builder.aggregates)
        if COLUMN in scope.columns:
            grouping.known.add(scope.columns[COLUMN].alias)
        values = [grouping.over(scope.resolve(item)) for item in bodies(query)]
        groups = checked(lambda: grouping.relation(keyed.relation))
        # Of nothing, count is 0 and all else NULL: where no group is met, the columns are NULL already.
        found = {Ref(groups.alias, m.name): of_group(m, groups.alias) for m in groups.measures} if keys else {}
        changed = {ref: one for ref, one in found.items() if one.as_ref is None}
        ties = zip(keyed.tied.ties, keyed.pairs, strict=True)
        same = [retied(tie, value, Expr.ref(groups.alias, grouping.keys[own.sql])) for tie, (own, value) in ties]
        host.join(groups, _all(same), keyed.kind)
        return self.builder.beside_groups(scope, host, [value.substitute(changed) for value in values])

    # -- ties ------------------------------------------------------------------------------

    def _tied(self, query: exp.Expression, host: Host) -> Tied:
        """The subquery on its own, and its ties to the row around it."""
        query = query.this if isinstance(query, exp.Subquery) else query
        if not self._plain(query, host.scope):
            return self.builder.tied(query, self.ctes, host.scope, host.around)
        assert isinstance(query, exp.Select)
        scope = Scope(host.scope, query)
        relation, outside = self.builder.from_where(query, scope, self.ctes)
        inner = Host(relation, scope)
        outputs = tuple(self.expression(item, inner) for item in bodies(query))
        return Tied(inner.built(relation), outputs, tuple(outside))

    def _plain(self, query: exp.Expression, scope: Scope) -> bool:
        """Nothing but FROM, WHERE and a select list; DISTINCT changes nothing where only existence is asked."""
        if not isinstance(query, exp.Select) or query.args.get("from_") is None or self.builder.aggregates.group(query):
            return False
        distinct = query.args.get("distinct")
        extra = any(query.args.get(name) for name in ("limit", "offset", "with_")) or (distinct and distinct.args["on"])
        rows = any(item.find(exp.Window) or self.builder.sets.inside(item) for item in bodies(query))
        return not extra and not rows and _only_ties(query, scope)

    def _keyed(self, query: exp.Expression, host: Host, *, exact: bool = False) -> _Keyed:
        """A subquery that is tied by equalities alone, of which it has one side; `exact`ly as many rows."""
        query = query.this if isinstance(query, exp.Subquery) else query
        tied = self._tied(query, host)
        pairs = equalities(tied.ties, tied.relation)
        own = set(tied.relation.columns)
        distinct = exact and query.args.get("distinct")
        if distinct or pairs is None or any(not output.refs <= own for output in tied.outputs):
            tied = self.builder.tied(query, self.ctes, host.scope, host.around)
            pairs = equalities(tied.ties, tied.relation)
        assert pairs is not None, f"not equalities: {tied.ties}"
        return _Keyed(tied, tuple(pairs))


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


def _only_ties(select: exp.Select, scope: Scope) -> bool:
    """Does it mention the row around it in conjuncts of its WHERE alone, or plainly in its select list?"""
    rest = select.copy()
    where = rest.args.get("where")
    asking = [part.copy() for part in parts_of(where.this) if has_subquery(part)] if where else []
    rest.set("where", exp.Where(this=exp.and_(*asking)) if asking else None)
    rest.set("expressions", [one for one in rest.expressions if has_subquery(one)])
    return not given_columns(rest, scope)


def _limited_to_one(query: exp.Expression) -> bool:
    limit = query.args.get("limit")
    count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression if limit else None
    ties = isinstance(limit, exp.Fetch) and "TIES" in printed(limit)
    return limit is not None and not ties and (count is None or (isinstance(count, exp.Literal) and count.name == "1"))


def _one_row(keyed: _Keyed) -> bool:
    """Is at most one row met? Where the ties, or what is asked of the table itself, name a unique key of it."""
    relation, conditions = keyed.relation, list(keyed.tied.ties)
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
