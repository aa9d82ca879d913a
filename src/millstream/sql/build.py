"""Turn PostgreSQL's canonical text of a query into a Relation.

The server has resolved names, so what is left is structure: FROM items become scans and joins,
WHERE a filter, GROUP BY an aggregate, HAVING a filter over it, the select list a projection. DISTINCT and the set
operations are aggregates; subqueries in expressions become joins (`subquery.py`).
Views and CTEs are built in place, as often as they are used. Every alias is made unique.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Expr, Ref, conjuncts, transform, unwrapped
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Expand,
    Expansion,
    Filter,
    Join,
    JoinKind,
    Limit,
    Measure,
    Named,
    Order,
    Project,
    Relation,
    Scan,
    UnionAll,
)  # fmt: skip
from millstream.algebra.table import Table
from millstream.algebra.types import PgType
from millstream.errors import Unsupported
from millstream.sql import clock
from millstream.sql.calls import called, is_call
from millstream.sql.clock import CLOCK
from millstream.sql.constants import ONE, constants
from millstream.sql.grouping import Aggregates, Grouping
from millstream.sql.grouping_sets import Set, numbered, sets_of
from millstream.sql.recursion import reads_itself, recursion
from millstream.sql.scope import Scope, checked
from millstream.sql.sets import Sets
from millstream.sql.subquery import Cte, Ctes, Host, Subqueries, has_subquery, text_with
from millstream.sql.windows import expanded, windowed


class Names(Protocol):
    """What the builder asks of the catalog."""

    def table(self, schema: str, name: str) -> Table | str:
        """A table, or the canonical text of a view."""

    def types(self, select: str) -> tuple[PgType, ...]:
        """The types of a query's output."""

    def aggregates(self) -> frozenset[str]:
        """The names of the aggregates that the query and the views met so far call."""

    def sets(self) -> Mapping[str, bool]:
        """Those of the functions that return sets; of each, whether what it returns has columns of its own."""


def build(text: str, names: Names) -> Relation:
    """The Relation of a canonical query text."""
    return _Builder(names).text(text)


class _Builder:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.aggregates = Aggregates(names.aggregates)
        self.aliases: set[str] = set()
        self.sets = Sets(names.sets, self.fresh)
        self.depth = 0
        """How many recursions stand around what is being built, as it is written."""

    def types(self, select: str) -> tuple[PgType, ...]:
        return self.names.types(select)

    def fresh(self, wanted: str) -> str:
        """An alias that nothing else has."""
        name, number = wanted, 1
        while name in self.aliases:
            number += 1
            name = f"{wanted}_{number}"
        self.aliases.add(name)
        return name

    # -- queries ---------------------------------------------------------------------------

    def text(self, text: str) -> Relation:
        """The relation of a canonical text: the query itself, or a view in it."""
        return self.query(clock.told(parsed(text)), {})

    def query(self, query: exp.Expression, ctes: Ctes, outer: Scope | None = None) -> Relation:
        """The relation of a query; of a subquery too, but then it must stand on its own."""
        if isinstance(query, exp.Subquery):
            return self.query(query.this, ctes, outer)
        ctes = self.with_queries(query, ctes)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, ctes, outer)
        if isinstance(query, exp.Values):
            return Scan(constants(query, self.names.types), self.fresh("values"))
        assert isinstance(query, exp.Select), f"unexpected {type(query).__name__}"
        return self._select(query, ctes, outer)

    def with_queries(self, query: exp.Expression, outer: Ctes) -> Ctes:
        """The WITH queries that a query may name."""
        known = dict(outer)
        clause = query.args.get("with_") or exp.With(expressions=[])
        for cte in clause.expressions:
            recursive = bool(clause.args.get("recursive")) and reads_itself(cte)
            waiting = self._recursing(cte, dict(known)) if recursive else self._waiting(cte, dict(known))
            known[cte.alias] = Cte(cte, waiting, recursive)
        return known

    def _recursing(self, cte: exp.CTE, ctes: Ctes) -> Callable[[], Relation]:
        depth = self.depth + 1

        def built() -> Relation:
            # By where it is written, not by where it is used: two uses are one block.
            self.depth, around = depth, self.depth
            try:
                return recursion(cte, ctes, depth, self)
            finally:
                self.depth = around

        return built

    def _waiting(self, cte: exp.Expression, ctes: Ctes) -> Callable[[], Relation]:
        given = [column.name for column in cte.args["alias"].columns]
        return lambda: self._called(self.query(cte.this, ctes), given)

    def _called(self, relation: Relation, names: list[str]) -> Relation:
        """The same with its first columns under other names."""
        if not names:
            return relation
        own = [ref.column for ref in relation.columns]
        outputs = zip([*names, *own[len(names) :]], relation.columns, strict=True)
        return Project(relation, tuple(Named(name, Expr(ref.sql)) for name, ref in outputs), self.fresh("q"))

    def _select(self, select: exp.Select, ctes: Ctes, outer: Scope | None) -> Relation:
        if sets := sets_of(select.args["group"]) if select.args.get("group") else None:
            return self._grouping_sets(select, sets, ctes, outer)
        scope = Scope(outer)
        select = expanded(select)
        relation, outside = self.from_where(select, scope, ctes)
        wanted = [_body(item) for item in select.expressions] + self._on(select) + _ordered(select)
        if self.aggregates.group(select):
            relation, exprs = self._grouped(select, wanted, relation, scope, ctes)
        else:
            host, subqueries = Host(relation, scope), Subqueries(self, ctes)
            exprs = [subqueries.expression(one, host) for one in wanted]
            relation = checked(lambda: host.built(relation))
        relation, exprs = windowed(relation, exprs, self.fresh)
        relation, exprs = self.sets.expanded(relation, exprs)
        if outside or scope.outside:
            raise Unsupported.construct(
                "a subquery that is tied to the query around it in this place",
                reason="Millstream does not maintain it yet.",
                way_round="Write it as a join, or tie it in the WHERE clause of the subquery itself.",
            )
        return self._shown(select, relation, exprs, ctes)

    def _grouping_sets(self, select: exp.Select, sets: list[Set], ctes: Ctes, outer: Scope | None) -> Relation:
        """One aggregate for each set, their rows together; what asks for more comes after."""
        if select.args.get("distinct") or _limit(select) or any(one.find(exp.Window) for one in select.expressions):
            raise Unsupported.construct(
                "DISTINCT, LIMIT or a window function beside GROUPING SETS",
                reason="Millstream does not maintain it yet.",
                way_round="Put the GROUPING SETS into a subquery.",
            )
        names = _unique([item.alias_or_name for item in select.expressions])
        listed = ", ".join(f"c{number}" for number in range(len(names)))
        types = self.names.types(f"SELECT * FROM ({text_with(select, ctes)}) AS u ({listed})")
        every = list(dict.fromkeys(Expr.of(key).sql for keys in sets for key in keys))
        parts = [self._select(self._of_set(select, keys, every, ctes), ctes, outer) for keys in sets]
        return UnionAll(tuple(parts), tuple(names), types, self.fresh("u"))

    def _of_set(self, select: exp.Select, keys: Set, every: list[str], ctes: Ctes) -> exp.Select:
        """The same grouped by one set: keys that are not in it are NULL."""
        present = {Expr.of(key).sql for key in keys}
        absent = [key for key in every if key not in present]
        copy = select.copy()
        # The keys as columns of FROM, so that the server can type them.
        bare = parsed(text_with(select, ctes))
        bare.set("expressions", [exp.alias_(_part(key), f"c{number}") for number, key in enumerate(absent)])
        for part in ("group", "having", "order"):
            bare.set(part, None)
        types = self.names.types(printed(clock.untold(bare))) if absent else ()
        nulls = {key: f"CAST(NULL AS {type_.name})" for key, type_ in zip(absent, types, strict=True)}

        def null(node: exp.Expression) -> exp.Expression:
            found = nulls.get(Expr.of(unwrapped(node)).sql) if not isinstance(node, exp.Identifier) else None
            return _part(found) if found and not _inside_a_call(node, self.aggregates) else node

        copy.set("expressions", [transform(numbered(one, present), null) for one in copy.expressions])
        if having := copy.args.get("having"):
            copy.set("having", exp.Having(this=transform(numbered(having.this, present), null)))
        copy.set("group", exp.Group(expressions=[key.copy() for key in keys]) if keys else None)
        copy.set("order", None)
        if not keys and not self.aggregates.group(copy):
            # The empty set has one row, even where no aggregate is asked for.
            copy.set("having", exp.Having(this=_part("count(*) >= 0")))
        return copy

    def _on(self, select: exp.Select) -> list[exp.Expression]:
        """The expressions of DISTINCT ON."""
        distinct = select.args.get("distinct")
        on = distinct.args.get("on") if distinct else None
        return list(on.expressions) if on else []

    def _shown(self, select: exp.Select, relation: Relation, exprs: list[Expr], ctes: Ctes) -> Relation:
        """The select list, each row once where that is asked for, the first ones where that is."""
        names = _unique([item.alias_or_name for item in select.expressions])
        items, rest = exprs[: len(names)], exprs[len(names) :]
        on, sorted_by = rest[: len(self._on(select))], rest[len(self._on(select)) :]
        if on:
            types = self.names.types(text_with(select, ctes))
            return self._first_of_each(select, relation, names, items, types, on, sorted_by)
        extra = [one for one in dict.fromkeys(sorted_by) if one not in items]
        if not items:
            # EXISTS (SELECT FROM ...): a row without columns is a row.
            names, items = ["one"], [Expr("1")]
        outputs = [*(Named(name, one) for name, one in zip(names, items, strict=True)),
                   *(Named(f"__ms_order_{n}", one) for n, one in enumerate(extra))]  # fmt: skip
        shown: Relation = Project(relation, tuple(outputs), self.fresh("q"))
        if select.args.get("distinct"):
            shown = self._distinct(shown)
        places = [(items + extra).index(one) for one in sorted_by]
        return self._limited(select, shown, names, [Expr(shown.columns[place].sql) for place in places])

    def _limited(self, query: exp.Expression, relation: Relation, names: list[str], sorted_by: list[Expr]) -> Relation:
        """The first rows, if LIMIT or OFFSET asks for them; without either, order means nothing in a table."""
        count = _limit(query)
        if not count:
            return relation
        order = (
            tuple(Order(one, _how(how)) for one, how in zip(sorted_by, query.args["order"].expressions, strict=True))
            if sorted_by
            else ()
        )
        limit = Limit(relation, order, count, self.fresh("l"))
        outputs = tuple(Named(name, Expr(ref.sql)) for name, ref in zip(names, limit.columns, strict=False))
        return Project(limit, outputs, self.fresh("q"))

    def _first_of_each(
        self,
        select: exp.Select,
        relation: Relation,
        names: list[str],
        items: list[Expr],
        types: tuple[PgType, ...],
        on: list[Expr],
        sorted_by: list[Expr],
    ) -> Relation:
        """DISTINCT ON: the first row of each partition; ties are told apart by all columns."""
        if _limit(select):
            raise Unsupported.construct(
                "DISTINCT ON with LIMIT", reason="Millstream does not maintain it yet.",
                way_round="Put the DISTINCT ON into a subquery.",
            )  # fmt: skip
        hows = [_how(one) for one in select.args["order"].expressions] if sorted_by else []
        # What has no order, by its text; a constant orders nothing.
        ordered = [
            one.sql if type_.comparable else f"CAST({one.sql} AS TEXT)" for one, type_ in zip(items, types, strict=True)
        ]
        ties = [text for one, text in zip(items, ordered, strict=True) if one.refs]
        order = [*(f"{one.sql} {how}" for one, how in zip(sorted_by, hows, strict=True)), *ties]
        text = f"row_number() OVER (PARTITION BY {', '.join(one.sql for one in on)} ORDER BY {', '.join(order)})"
        relation, exprs = windowed(relation, [*items, Expr.parse(text)], self.fresh)
        first = Filter(relation, Expr.parse(f"({exprs[-1].sql}) = 1"))
        outputs = tuple(Named(name, one) for name, one in zip(names, exprs, strict=False))
        return Project(first, outputs, self.fresh("q"))

    def from_where(self, select: exp.Select, scope: Scope, ctes: Ctes) -> tuple[Relation, list[Expr]]:
        """FROM and WHERE, and the conjuncts of WHERE that mention the query around this one."""
        relation = self._with_clock(select, self._from(select, scope, ctes), scope)
        where = select.args.get("where")
        plain, asking = list[exp.Expression](), list[exp.Expression]()
        for part in _conjuncts(where.this) if where else ():
            (asking if has_subquery(part) else plain).append(part)
        conditions = [scope.resolve(part) for part in plain]
        own = set(relation.columns)
        inside = [one for one in conditions if one.refs <= own]
        relation = _filtered(relation, inside)
        # What asks for more comes after what can be told at once.
        host, subqueries = Host(relation, scope), Subqueries(self, ctes)
        asked = [subqueries.condition(part, host) for part in asking]
        relation = _filtered(checked(lambda: host.built(relation)), asked)
        return relation, [one for one in conditions if not one.refs <= own]

    # -- the clock -------------------------------------------------------------------------

    def _with_clock(self, select: exp.Select, relation: Relation, scope: Scope) -> Relation:
        """The rows of FROM beside the clock, where a SELECT asks of them what time it is."""
        asking = clock.columns(select)
        if not asking:
            return relation
        if self.aggregates.group(select):
            asking = [one for one in asking if clock.grouped(one, select, self.aggregates.called)]
        beside = self._beside_clock(relation, scope)
        return beside if asking else relation

    def _beside_clock(self, relation: Relation, scope: Scope) -> Relation:
        """Each row with the time; from here on the scope knows it."""
        scan = Scan(CLOCK, self.fresh("clock"))
        scope.columns[clock.COLUMN] = scan.columns[0]
        return Join(relation, scan)

    def beside_groups(self, scope: Scope, host: Host, exprs: Sequence[Expr]) -> list[Expr]:
        """Expressions over groups; one that asks what time it is asks a clock beside the groups."""
        below = scope.columns.get(clock.COLUMN)
        if below is None or not any(below in one.refs for one in exprs):
            return list(exprs)
        scan = Scan(CLOCK, self.fresh("clock"))
        host.join(scan, None, "inner")
        return [one.substitute({below: Expr(scan.columns[0].sql)}) for one in exprs]

    # -- DISTINCT and set operations -------------------------------------------------------

    def _distinct(self, relation: Relation) -> Relation:
        """Each row once: the groups of all columns."""
        keys = tuple(Named(f"k{n}", Expr(ref.sql)) for n, ref in enumerate(relation.columns))
        groups = Aggregate(relation, keys, (), self.fresh("d"))
        return self._named_like(relation, groups)

    def _named_like(self, relation: Relation, groups: Relation) -> Relation:
        outputs = tuple(
            Named(r.column, Expr.ref(g.alias, g.column)) for r, g in zip(relation.columns, groups.columns, strict=False)
        )
        return Project(groups, outputs, self.fresh("q"))

    def _set_operation(self, query: exp.SetOperation, ctes: Ctes, outer: Scope | None) -> Relation:
        parts = [self.query(part, ctes, outer) for part in (query.this, query.expression)]
        names = tuple(ref.column for ref in parts[0].columns)
        # Under names of our own: the user may give one name to two columns.
        listed = ", ".join(f"c{number}" for number in range(len(names)))
        types = self.names.types(f"SELECT * FROM ({text_with(query, ctes)}) AS u ({listed})")
        relation = self._combined(query, parts, names, types)
        order = query.args.get("order")
        places = [int(one.this.name) - 1 for one in order.expressions] if order and _limit(query) else []
        return self._limited(query, relation, list(names), [Expr(relation.columns[place].sql) for place in places])

    def _combined(
        self, query: exp.SetOperation, parts: list[Relation], names: tuple[str, ...], types: tuple[PgType, ...]
    ) -> Relation:
        if isinstance(query, exp.Union):
            united = UnionAll(tuple(parts), names, types, self.fresh("u"))
            return self._distinct(united) if query.args.get("distinct") else united
        return self._counted(query, parts, names, types)

    def _counted(
        self, query: exp.SetOperation, parts: list[Relation], names: tuple[str, ...], types: tuple[PgType, ...]
    ) -> Relation:
        """INTERSECT and EXCEPT: how often each row stands on either side."""
        sided = []
        for number, part in enumerate(parts):
            outputs = tuple(Named(f"c{n}", Expr(ref.sql)) for n, ref in enumerate(part.columns))
            sided.append(Project(part, (*outputs, Named("side", Expr(str(number)))), self.fresh("side")))
        columns = (*(f"c{n}" for n in range(len(names))), "side")
        united = UnionAll(tuple(sided), columns, (*types, _INT4), self.fresh("u"))
        keys = tuple(Named(f"k{n}", Expr.ref(united.alias, f"c{n}")) for n in range(len(names)))
        sides = [Expr.parse(f'"{united.alias}"."side" = {number}') for number in (0, 1)]
        measures = tuple(Measure(f"m{n}", Call("count", None, side)) for n, side in enumerate(sides))
        groups = Aggregate(united, keys, measures, self.fresh("d"))
        if not query.args.get("distinct"):
            return self._as_often(query, groups, names)
        test = "> 0" if isinstance(query, exp.Intersect) else "= 0"
        kept = Filter(groups, Expr.parse(f'"{groups.alias}"."m0" > 0 AND "{groups.alias}"."m1" {test}'))
        outputs = tuple(Named(name, Expr.ref(groups.alias, f"k{n}")) for n, name in enumerate(names))
        return Project(kept, outputs, self.fresh("q"))

    def _as_often(self, query: exp.SetOperation, groups: Aggregate, names: tuple[str, ...]) -> Relation:
        """INTERSECT ALL and EXCEPT ALL: each row as often as both sides have it, or as the first has it more."""
        left, right = (Ref(groups.alias, name).sql for name in ("m0", "m1"))
        times = f"LEAST({left}, {right})" if isinstance(query, exp.Intersect) else f"({left} - {right})"
        call = Expansion(self.fresh("times"), ("n",), Expr.parse(f"generate_series(CAST(1 AS BIGINT), {times})"))
        rows = Expand(groups, call, self.fresh("x"))
        outputs = tuple(Named(name, Expr.ref(rows.alias, f"c{n}")) for n, name in enumerate(names))
        return Project(rows, outputs, self.fresh("q"))

    # -- FROM ------------------------------------------------------------------------------

    def _from(self, select: exp.Select, scope: Scope, ctes: Ctes) -> Relation:
        clause = select.args.get("from_")
        if clause is None:
            return Scan(ONE, self.fresh("one"))
        relation = self._from_item(clause.this, scope, ctes)
        return self._joined(relation, select.args.get("joins") or [], scope, ctes)

    def _joined(self, relation: Relation, joins: list[exp.Join], scope: Scope, ctes: Ctes) -> Relation:
        for join in joins:
            if is_call(join.this):
                relation = self._expanded(relation, join, scope)
                continue
            own = Scope(scope.outer)
            right = self._from_item(join.this, own, ctes)
            if clock.asks(join.args.get("on")):
                # On the optional side, where what it decides is a filter.
                relation, right = (
                    (self._beside_clock(relation, scope), right)
                    if join.side == "RIGHT"
                    else (relation, self._beside_clock(right, own))
                )
            condition = self._condition(join, scope, own)
            one, other = (right, relation) if join.side == "RIGHT" else (relation, right)
            kind: JoinKind = _KINDS.get(join.side, "inner")
            relation = checked(lambda: Join(one, other, condition, kind))  # noqa: B023  # called at once
        return relation

    def _expanded(self, relation: Relation, join: exp.Join, scope: Scope) -> Relation:
        """A function in FROM: the rows it makes of each row so far."""
        on = join.args.get("on")
        if join.side not in ("", "LEFT") or (on is not None and unwrapped(on) != exp.true()) or join.args.get("using"):
            raise Unsupported.construct(
                "a function in FROM that is joined by a condition",
                reason="Millstream does not maintain it yet.",
                way_round="Join it with ON true, and filter in WHERE.",
            )
        given = called(join.this)
        relation = self._beside_clock(relation, scope) if clock.asks(given.call) else relation
        expansion = Expansion(
            self.fresh(given.alias), given.columns, scope.resolve(given.call), join.side == "LEFT", given.numbered
        )
        before = relation.columns
        expand = checked(lambda: Expand(relation, expansion, self.fresh("x")))
        scope.moved(dict(zip(before, expand.columns, strict=False)))
        scope.add(given.alias, given.columns, expand.columns[len(before) :])
        return expand

    def _condition(self, join: exp.Join, scope: Scope, right: Scope) -> Expr | None:
        """What a join asks of its pairs; from then on the scope knows both sides."""
        using = [column.name for column in join.args.get("using") or ()]
        pairs = {name: (scope.shown(name), right.shown(name)) for name in using}
        scope.join(right, {name: _merged(*pair, join.side) for name, pair in pairs.items()})
        if using:
            return Expr.parse(" AND ".join(f"({one.sql} = {other.sql})" for one, other in pairs.values()))
        on = join.args.get("on")
        if on is not None and has_subquery(on):
            raise Unsupported.construct(
                "a subquery in ON", reason="Millstream does not maintain it yet.", way_round="Move it to WHERE."
            )
        return scope.resolve(on) if on else None

    def _from_item(self, item: exp.Expression, scope: Scope, ctes: Ctes) -> Relation:
        if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select | exp.SetOperation | exp.Values):
            relation = self.query(item.this, ctes)
            self._name(item, relation, scope)
        elif isinstance(item, exp.Values):
            relation = self.query(item, ctes)
            self._name(item, relation, scope)
        elif isinstance(item, exp.Subquery):  # parentheses around a join
            relation = self._parenthesised(item, scope, ctes)
        elif is_call(item):
            relation = self._expanded(Scan(ONE, self.fresh("one")), exp.Join(this=item), scope)
        else:
            assert isinstance(item, exp.Table), f"unexpected {type(item).__name__}"
            relation = self._table(item, scope, ctes)
        return self._joined(relation, item.args.get("joins") or [], scope, ctes)

    def _parenthesised(self, item: exp.Subquery, scope: Scope, ctes: Ctes) -> Relation:
        if not item.alias:
            return self._from_item(item.this, scope, ctes)
        # (a JOIN b USING (k)) AS j: its columns are j's, those of USING first.
        own = Scope(scope.outer)
        relation = self._from_item(item.this, own, ctes)
        names = _unique([name for name, _ in own.output])
        outputs = tuple(Named(name, expr) for name, (_, expr) in zip(names, own.output, strict=True))
        whole = Project(relation, outputs, self.fresh("j"))
        self._name(item, whole, scope)
        return whole

    def _table(self, item: exp.Table, scope: Scope, ctes: Ctes) -> Relation:
        if not item.db and item.name in ctes:
            relation = ctes[item.name].relation()
            self._name(item, relation, scope)
            return relation
        found = self.names.table(item.db, item.name)
        if isinstance(found, str):
            relation = self.text(found)
            self._name(item, relation, scope)
            return relation
        if item.args.get("only"):
            raise Unsupported.construct(
                "FROM ONLY", reason="Changes of the children could not be told apart.", way_round="Leave ONLY out."
            )
        scan = Scan(found, self.fresh(item.alias_or_name))
        self._name(item, scan, scope)
        return scan

    def _name(self, item: exp.Expression, relation: Relation, scope: Scope) -> None:
        alias = item.args.get("alias")
        given = [column.name for column in alias.columns] if alias else []
        names = [ref.column for ref in relation.columns]
        names[: len(given)] = given
        scope.add(item.alias_or_name, tuple(names), relation.columns)

    # -- GROUP BY --------------------------------------------------------------------------

    def _grouped(
        self, select: exp.Select, wanted: list[exp.Expression], relation: Relation, scope: Scope, ctes: Ctes
    ) -> tuple[Relation, list[Expr]]:
        """The groups that HAVING keeps, and expressions over them."""
        subqueries = Subqueries(self, ctes)
        group = select.args.get("group")
        before, written = relation.columns, group.expressions if group else ()
        relation, made = self.sets.expanded(relation, [scope.resolve(key) for key in written])
        scope.moved(dict(zip(before, relation.columns, strict=False)))
        keys = [Expr.of(unwrapped(scope.resolve(key).node)) for key in written]
        grouping = Grouping(tuple(dict.fromkeys(keys)), self.fresh("g"), self.aggregates)
        grouping.made = {key.sql: column for key, column in zip(keys, made, strict=True)}
        host = Host(None, scope, grouping.over)
        grouping.known = host.known
        if clock.COLUMN in scope.columns:
            host.known.add(scope.columns[clock.COLUMN].alias)
        present = {Expr.of(unwrapped(key)).sql for key in (group.expressions if group else ())}
        exprs = [self._over(numbered(one, present), host, grouping, subqueries) for one in wanted]
        having = select.args.get("having")
        asked = [self._over(part, host, grouping, subqueries) for part in _conjuncts(having.this)] if having else []
        aggregate: Relation = grouping.relation(relation)
        told = self.beside_groups(scope, host, [*exprs, *asked])
        return _filtered(checked(lambda: host.built(aggregate)), told[len(exprs) :]), told[: len(exprs)]

    def _over(self, node: exp.Expression, host: Host, grouping: Grouping, subqueries: Subqueries) -> Expr:
        """An expression of the select list or HAVING, over the groups."""
        if any(self.aggregates.called(call) and call.find(exp.Select) for call in node.find_all(exp.Expression)):
            raise Unsupported.construct(
                "a subquery inside an aggregate",
                reason="Millstream does not maintain it yet.",
                way_round="Compute it in a subquery of FROM, and aggregate that.",
            )
        return grouping.over(subqueries.expression(node, host))


_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "left", "FULL": "full"}
_INT4 = PgType(23, "integer", "int4")


def _ordered(select: exp.Select) -> list[exp.Expression]:
    """What a SELECT orders by, where that decides which rows are in it."""
    order = select.args.get("order")
    distinct = select.args.get("distinct")
    matters = _limit(select) or (distinct is not None and distinct.args.get("on") is not None)
    return [one.this for one in order.expressions] if order and matters else []


def _limit(query: exp.Expression) -> str:
    """LIMIT and OFFSET, as PostgreSQL reads them; empty where there is neither."""
    found = [query.args.get(name) for name in ("limit", "offset")]
    if any(one is not None and (one.find(exp.Select) or clock.asks(one)) for one in found):
        raise Unsupported.construct(
            "LIMIT or OFFSET by a subquery or by the time",
            reason="How many rows there are would change without a change of them.",
            way_round="Write a number.",
        )  # fmt: skip
    return " ".join(printed(one).strip() for one in found if one is not None)


def _how(order: exp.Expression) -> str:
    nulls = "NULLS FIRST" if order.args.get("nulls_first") else "NULLS LAST"
    return f"{'DESC' if order.args.get('desc') else 'ASC'} {nulls}"


def _part(text: str) -> exp.Expression:
    """The tree of an expression whose columns are still to be resolved."""
    return Expr(text).node


def _inside_a_call(node: exp.Expression, aggregates: Aggregates) -> bool:
    """Is it an argument of an aggregate? There it is a column, whatever the set."""
    parent = node.parent
    while isinstance(parent, exp.Expression) and not isinstance(parent, exp.Select):
        if aggregates.called(parent):
            return True
        parent = parent.parent
    return False


def _unique(names: list[str]) -> list[str]:
    """Names of which no two are the same: in a subquery two columns may have one, as long as nobody uses it."""
    return [name if name not in names[:n] else f"{name} ({n})" for n, name in enumerate(names)]


def _body(item: exp.Expression) -> exp.Expression:
    body = item.this if isinstance(item, exp.Alias) else item
    assert isinstance(body, exp.Expression)
    return body


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    node = unwrapped(node)
    if isinstance(node, exp.And):
        return [*_conjuncts(node.this), *_conjuncts(node.expression)]
    return [node]


def _filtered(relation: Relation, conditions: list[Expr]) -> Relation:
    parts = [part for condition in conditions for part in conjuncts(condition)]
    if not parts:
        return relation
    return Filter(relation, Expr.parse(" AND ".join(f"({part.sql})" for part in parts)) if len(parts) > 1 else parts[0])


def _merged(one: Expr, other: Expr, side: str) -> Expr:
    """What a column of USING is."""
    if side == "FULL":
        return Expr.parse(f"COALESCE({one.sql}, {other.sql})")
    return other if side == "RIGHT" else one
