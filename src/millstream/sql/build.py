"""Turn PostgreSQL's canonical text of a query into a Relation.

The server has resolved names, so what is left is structure: FROM items become scans and joins,
WHERE a filter, GROUP BY an aggregate, HAVING a filter over it, the select list a projection. DISTINCT and the set
operations are aggregates; subqueries in expressions become joins (`subquery.py`).
Views and CTEs are built in place, as often as they are used. Every alias is made unique.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Expr, Ref, all_of, conjuncts, transform, unwrapped
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
from millstream.sql.asked_on import Side, asked_on
from millstream.sql.calls import called, is_call
from millstream.sql.carried import balanced, first_rows_for_each, one_row_for_each, settled, ties_of
from millstream.sql.clock import CLOCK
from millstream.sql.constants import ONE, as_selects, constants
from millstream.sql.given import (
    GIVEN,
    Given,
    Tied,
    bodies,
    equalities,
    given_columns,
    inlined,
    names_before,
    partitioned,
    parts_of,
    refs_of,
    refuse_aggregates_of,
    tied_by_equalities,
    unfolded,
)  # fmt: skip
from millstream.sql.grouping import Aggregates, Grouping
from millstream.sql.grouping_sets import Set, numbered, sets_of
from millstream.sql.host import Host
from millstream.sql.outermost import has_subquery
from millstream.sql.recursion import reads_itself, recursion
from millstream.sql.scalar import computed
from millstream.sql.scope import Scope, checked
from millstream.sql.sets import Sets
from millstream.sql.subquery import Subqueries
from millstream.sql.windows import expanded, windowed
from millstream.sql.with_queries import Cte, Ctes, text_with


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

    def query(
        self, query: exp.Expression, ctes: Ctes, outer: Scope | None = None, given: Given | None = None
    ) -> Relation:
        """The relation of a query; of a subquery too: its last columns are what it is given."""
        if isinstance(query, exp.Subquery):
            return self.query(query.this, ctes, outer, given)
        query = inlined(query, outer) if given else query
        ctes = self.with_queries(query, ctes)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, ctes, outer, given)
        if isinstance(query, exp.Values) and given is not None:
            return self.query(as_selects(query), ctes, outer, given)
        if isinstance(query, exp.Values):
            return Scan(constants(query, self.names.types), self.fresh("values"))
        assert isinstance(query, exp.Select), f"unexpected {type(query).__name__}"
        return self._select(query, ctes, outer, given)

    def tied(self, query: exp.Expression, ctes: Ctes, scope: Scope, around: Relation) -> Tied:
        """A subquery of any kind, and what ties it to the rows around it."""
        query = inlined(query.this if isinstance(query, exp.Subquery) else query, scope)
        columns = given_columns(query, scope)
        if not columns:
            relation = self.query(query, ctes)
            return Tied(relation, tuple(Expr(ref.sql) for ref in relation.columns), ())
        refuse_aggregates_of(columns, query, scope, self.aggregates)
        if isinstance(query, exp.Select) and tied_by_equalities(query, scope, self.aggregates):
            return self._keyed(query, self.with_queries(query, ctes), scope)
        given = Given(tuple(columns), around, self._types(columns.values(), ctes, scope))
        relation = self.query(query, ctes, scope, given)
        shown, carried = refs_of(relation, len(columns))
        ties = given.ties(Expr(ref.sql) for ref in carried)
        return Tied(relation, tuple(Expr(ref.sql) for ref in shown), ties)

    def _keyed(self, select: exp.Select, ctes: Ctes, outer: Scope) -> Tied:
        """A SELECT that is tied by equalities alone: it carries its own ends of them."""
        scope = Scope(outer, select)
        select = expanded(select)
        relation, outside = self.from_where(select, scope, ctes)
        pairs = equalities(outside, relation)
        assert pairs is not None, f"not equalities: {outside}"
        scope.outside.clear()
        whole = self._chosen(select, relation, scope, ctes, [own for own, _ in pairs])
        shown, carried = refs_of(whole, len(pairs))
        ties = tuple(Expr.parse(f"({value.sql}) = {ref.sql}") for (_, value), ref in zip(pairs, carried, strict=True))
        return Tied(whole, tuple(Expr(ref.sql) for ref in shown), ties)

    def _types(self, columns: Iterable[exp.Column], ctes: Ctes, scope: Scope) -> tuple[PgType, ...]:
        """The types of columns of the queries around."""
        return tuple(self._type(column, ctes, scope) for column in columns)

    def _type(self, column: exp.Column, ctes: Ctes, scope: Scope) -> PgType:
        owner = scope.owner(column)
        assert owner is not None, f"nobody has {column}"
        assert owner.select is not None, f"{column} is of no query"
        bare = exp.Select(expressions=[exp.alias_(column.copy(), "c")])
        for part in ("from_", "joins"):
            bare.set(part, copied(owner.select.args.get(part)))
        return self.names.types(self._closed(bare, ctes, owner.outer))[0]

    def _closed(self, query: exp.Expression, ctes: Ctes, outer: Scope | None) -> str:
        """The text of a query for the server to type: what it is given is NULL."""
        text = text_with(query, ctes)
        columns = given_columns(query, outer) if outer else {}
        if outer is None or not columns:
            return text
        nulls = {
            (column.table, column.name): f"CAST(NULL AS {self._type(column, ctes, outer).name})"
            for column in columns.values()
        }

        def null(node: exp.Expression) -> exp.Expression:
            found = nulls.get((node.table, node.name)) if isinstance(node, exp.Column) else None
            return _part(found) if found else node

        return printed(transform(parsed(text), null))

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

    def _select(self, select: exp.Select, ctes: Ctes, outer: Scope | None, given: Given | None = None) -> Relation:
        if sets := sets_of(select.args["group"]) if select.args.get("group") else None:
            return self._grouping_sets(select, sets, ctes, outer, given)
        scope = Scope(outer, select)
        select = expanded(select)
        relation, _ = self.from_where(select, scope, ctes, given)
        carried = [scope.given[value] for value in given.values] if given else []
        return self._chosen(select, relation, scope, ctes, carried, given)

    def _chosen(
        self,
        select: exp.Select,
        relation: Relation,
        scope: Scope,
        ctes: Ctes,
        carried: list[Expr],
        given: Given | None = None,
    ) -> Relation:
        """What a SELECT makes of the rows of its FROM and WHERE; what it carries comes last."""
        wanted = bodies(select) + self._on(select) + _ordered(select)
        if self.aggregates.group(select):
            relation, exprs = self._grouped(select, wanted, relation, scope, ctes, carried, given)
            exprs, carried = exprs[: len(wanted)], exprs[len(wanted) :]
        else:
            host, subqueries = Host(relation, scope), Subqueries(self, ctes)
            exprs = [subqueries.expression(one, host) for one in wanted]
            relation = checked(lambda: host.built(relation))
        if scope.outside:
            raise Unsupported.construct(
                "a subquery that is tied to the query around it in this place",
                reason="Millstream does not maintain it yet.",
                way_round="Write it as a join, or tie it in the WHERE clause of the subquery itself.",
            )
        exprs = [partitioned(one, carried) for one in exprs] if carried else exprs
        relation, exprs = windowed(relation, [*exprs, *carried], self.fresh)
        relation, exprs = self.sets.expanded(relation, exprs)
        return self._shown(select, relation, exprs, len(carried), lambda: self._closed(select, ctes, scope.outer))

    def _grouping_sets(
        self, select: exp.Select, sets: list[Set], ctes: Ctes, outer: Scope | None, given: Given | None
    ) -> Relation:
        """One aggregate for each set, their rows together; what asks for more comes after."""
        if select.args.get("distinct") or _limit(select) or any(one.find(exp.Window) for one in select.expressions):
            raise Unsupported.construct(
                "DISTINCT, LIMIT or a window function beside GROUPING SETS",
                reason="Millstream does not maintain it yet.",
                way_round="Put the GROUPING SETS into a subquery.",
            )
        names = _unique([item.alias_or_name for item in select.expressions])
        listed = ", ".join(f"c{number}" for number in range(len(names)))
        types = self.names.types(f"SELECT * FROM ({self._closed(select, ctes, outer)}) AS u ({listed})")
        every = list(dict.fromkeys(Expr.of(key).sql for keys in sets for key in keys))
        parts = [self._select(self._of_set(select, keys, every, ctes, outer), ctes, outer, given) for keys in sets]
        carried, more = (given.names, given.key_types) if given else ((), ())
        return UnionAll(tuple(parts), (*names, *carried), (*types, *more), self.fresh("u"))

    def _of_set(self, select: exp.Select, keys: Set, every: list[str], ctes: Ctes, outer: Scope | None) -> exp.Select:
        """The same grouped by one set: keys that are not in it are NULL."""
        present = {Expr.of(key).sql for key in keys}
        absent = [key for key in every if key not in present]
        copy = select.copy()
        # The keys as columns of FROM, so that the server can type them.
        bare = parsed(self._closed(select, ctes, outer))
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

    def _shown(
        self, select: exp.Select, relation: Relation, exprs: list[Expr], carried: int, text: Callable[[], str]
    ) -> Relation:
        """The select list, each row once where that is asked for, the first ones where that is."""
        names = _unique([item.alias_or_name for item in select.expressions])
        place = len(exprs) - carried
        items, rest, kept = exprs[: len(names)], exprs[len(names) : place], exprs[place:]
        on, sorted_by = rest[: len(self._on(select))], rest[len(self._on(select)) :]
        carrying = [Named(f"{GIVEN}{n}", one) for n, one in enumerate(kept)]
        if on:
            shown = [Named(name, one) for name, one in zip(names, items, strict=True)]
            return self._first_of_each(select, relation, shown, carrying, self.names.types(text()), on, sorted_by)
        extra = [one for one in dict.fromkeys(sorted_by) if one not in items]
        if not items:
            # EXISTS (SELECT FROM ...): a row without columns is a row.
            names, items = ["one"], [Expr("1")]
        outputs = [*(Named(name, one) for name, one in zip(names, items, strict=True)),
                   *(Named(f"__ms_order_{n}", one) for n, one in enumerate(extra)), *carrying]  # fmt: skip
        whole: Relation = Project(relation, tuple(outputs), self.fresh("q"))
        if select.args.get("distinct"):
            whole = self._distinct(whole)
        ordering = [Expr(whole.columns[(items + extra).index(one)].sql) for one in sorted_by]
        return self._limited(select, whole, names, ordering, carried, lambda: self.names.types(text()))

    def _limited(
        self,
        query: exp.Expression,
        relation: Relation,
        names: list[str],
        sorted_by: list[Expr],
        carried: int = 0,
        types: Callable[[], tuple[PgType, ...]] = tuple,
    ) -> Relation:
        """The first rows, if LIMIT or OFFSET asks for them; without either, order means nothing in a table."""
        count = _limit(query)
        if not count:
            return relation
        hows = [_how(how) for how in query.args["order"].expressions] if sorted_by else []
        order = tuple(Order(one, how) for one, how in zip(sorted_by, hows, strict=True))
        if carried:
            return first_rows_for_each(query, relation, names, order, carried, types(), self.fresh)
        limit = Limit(relation, order, count, self.fresh("l"))
        outputs = tuple(Named(name, Expr(ref.sql)) for name, ref in zip(names, limit.columns, strict=False))
        return Project(limit, outputs, self.fresh("q"))

    def _first_of_each(
        self,
        select: exp.Select,
        relation: Relation,
        shown: list[Named],
        carrying: list[Named],
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
        ordered = [f"{one.sql} {how}" for one, how in zip(sorted_by, hows, strict=True)]
        keys = ", ".join(one.sql for one in (*on, *(kept.expr for kept in carrying)))
        order = ", ".join([*ordered, *ties_of([one.expr for one in shown], types)])
        number = Expr.parse(f"row_number() OVER (PARTITION BY {keys} ORDER BY {order})")
        every = [*shown, *carrying]
        relation, exprs = windowed(relation, [*(one.expr for one in every), number], self.fresh)
        first = Filter(relation, Expr.parse(f"({exprs[-1].sql}) = 1"))
        outputs = tuple(Named(named.name, one) for named, one in zip(every, exprs, strict=False))
        return Project(first, outputs, self.fresh("q"))

    def from_where(
        self, select: exp.Select, scope: Scope, ctes: Ctes, given: Given | None = None
    ) -> tuple[Relation, list[Expr]]:
        """FROM and WHERE, and the conjuncts of WHERE that mention the query around this one."""
        where = select.args.get("where")
        plain, asking = list[exp.Expression](), list[exp.Expression]()
        for part in parts_of(where.this) if where else ():
            (asking if has_subquery(part) else plain).append(part)
        # Below a LATERAL they leave fewer rows to compute it for, unless a join above would bring other rows.
        scope.early = [] if _brings_rows(select) else plain
        relation = self._with_clock(select, self._from(select, scope, ctes, given), scope)
        conditions = [scope.resolve(part) for part in (plain if _brings_rows(select) else scope.early)]
        own = set(relation.columns)
        inside = [one for one in conditions if one.refs <= own]
        relation = _filtered(relation, inside)
        # What asks for more comes after what can be told at once.
        relation = self._asked(relation, asking, scope, ctes)
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

    def _set_operation(self, query: exp.SetOperation, ctes: Ctes, outer: Scope | None, given: Given | None) -> Relation:
        parts = [self.query(part, ctes, outer, given) for part in (query.this, query.expression)]
        carried = len(given.values) if given else 0
        names = tuple(ref.column for ref in refs_of(parts[0], carried)[0])
        # Under names of our own: the user may give one name to two columns.
        listed = ", ".join(f"c{number}" for number in range(len(names)))
        # Rows without columns have one of ours.
        bare = not next(query.find_all(exp.Select)).expressions
        text = f"SELECT * FROM ({self._closed(query, ctes, outer)}) AS u ({listed})"
        types = (_INT4,) if bare else self.names.types(text)
        more, their = (given.names, given.key_types) if given else ((), ())
        relation = self._combined(query, parts, (*names, *more), (*types, *their))
        order = query.args.get("order")
        places = [int(one.this.name) - 1 for one in order.expressions] if order and _limit(query) else []
        ordering = [Expr(relation.columns[place].sql) for place in places]
        return self._limited(query, relation, list(names), ordering, carried, lambda: types)

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

    def _from(self, select: exp.Select, scope: Scope, ctes: Ctes, given: Given | None) -> Relation:
        clause = select.args.get("from_")
        joins = select.args.get("joins") or []
        if given is not None and (clause is None or is_call(clause.this)):
            alias = self.fresh("given")
            scope.given, scope.casts = given.known(alias), given.casts
            called_first = [exp.Join(this=clause.this.copy())] if clause else []
            return self._joined(given.rows(alias), [*called_first, *joins], scope, ctes, given)
        if clause is None:
            return Scan(ONE, self.fresh("one"))
        relation = self._from_item(clause.this, scope, ctes, given)
        relation = self._joined(relation, joins, scope, ctes, given)
        return relation if given is None or scope.given else given.joined(relation, scope, self.fresh("given"))

    def _joined(
        self, relation: Relation, joins: list[exp.Join], scope: Scope, ctes: Ctes, given: Given | None
    ) -> Relation:
        for join in joins:
            if names_before(join, scope):
                relation = self._joined(relation, unfolded(join.this), scope, ctes, given)
                continue
            if given and not scope.given and scope.outer and given_columns(join, scope.outer):
                relation = given.joined(relation, scope, self.fresh("given"))
            if is_call(join.this) and (join.this.find(exp.Column) or not _stands_apart(join)):
                relation = self._expanded(relation, join, scope, ctes)
                continue
            made = None
            if isinstance(join.this, exp.Lateral):
                relation = _filtered(relation, scope.ready())
                made = self._computed(relation, join, scope, ctes)
            relation = made or self._with_item(relation, join, scope, ctes, given)
        return relation

    def _computed(self, relation: Relation, join: exp.Join, scope: Scope, ctes: Ctes) -> Relation | None:
        """LATERAL that has one row for each row so far: more columns of it. None of any other."""
        item = join.this
        if join.args.get("on") is not None and unwrapped(join.args["on"]) != exp.true():
            return None
        host, subqueries = Host(relation, scope), Subqueries(self, ctes)
        exprs = computed(subqueries, item.this.this, host)
        if exprs is None:
            return None
        before = relation.columns
        kept = [Named(f"c{n}", Expr(ref.sql)) for n, ref in enumerate(before)]
        made = [Named(f"f{n}", one) for n, one in enumerate(exprs)]
        whole = checked(lambda: Project(host.built(relation), (*kept, *made), self.fresh("x")))
        scope.moved(dict(zip(before, whole.columns, strict=False)))
        names = _unique([one.alias_or_name for one in item.this.this.expressions])
        given = [column.name for column in item.args["alias"].columns]
        names[: len(given)] = given
        scope.add(item.alias, names, whole.columns[len(before) :])
        return whole

    def _with_item(self, relation: Relation, join: exp.Join, scope: Scope, ctes: Ctes, given: Given | None) -> Relation:
        """The rows so far joined to the next item."""
        own, ties = Scope(scope.outer, scope.select), list[Expr]()
        if isinstance(join.this, exp.Lateral):
            tied = self.tied(join.this.this, ctes, scope, relation)
            right, ties = tied.relation, list(tied.ties)
            self._name(join.this, right, own, len(tied.outputs))
        else:
            right = self._from_item(join.this, own, ctes, given)
        if clock.asks(join.args.get("on")):
            # On the optional side, where what it decides is a filter.
            if join.side == "RIGHT":
                relation = self._beside_clock(relation, scope)
            else:
                right = self._beside_clock(right, own)
        if given is not None:
            relation, right, more = balanced(relation, right, scope, own, join.side, given, self.fresh)
            ties += more
        on = parts_of(join.args["on"]) if join.args.get("on") else []
        asking = [part for part in on if has_subquery(part)]
        one, other = Side(relation, scope), Side(right, own)
        kept, optional = (other, one) if join.side == "RIGHT" else (one, other)
        if join.side and asking:
            subqueries, full = Subqueries(self, ctes), join.side == "FULL"
            types = lambda columns: self._types(columns, ctes, kept.scope)  # noqa: E731  # of this join
            ties += asked_on(on, asking, kept, optional, subqueries, types, self.fresh, full=full)
        condition = joined_by([self._condition(join, scope, own), *ties])
        settled(scope, own, join.side)
        whole = checked(lambda: Join(kept.rows, optional.rows, condition, _KINDS.get(join.side, "inner")))
        return whole if join.side else self._asked(whole, asking, scope, ctes)

    def _asked(self, relation: Relation, asking: list[exp.Expression], scope: Scope, ctes: Ctes) -> Relation:
        """The rows for which conditions with subqueries are true."""
        host, subqueries = Host(relation, scope), Subqueries(self, ctes)
        asked = [subqueries.condition(part, host) for part in asking]
        return _filtered(checked(lambda: host.built(relation)), asked)

    def _expanded(self, relation: Relation, join: exp.Join, scope: Scope, ctes: Ctes) -> Relation:
        """A function in FROM: the rows it makes of each row so far."""
        on = parts_of(join.args["on"]) if join.args.get("on") else []
        on = [part for part in on if part != exp.true()]
        optional = join.side == "LEFT"
        if _stands_apart(join):
            raise Unsupported.construct(
                "a function over a table that is joined by USING, or LEFT JOIN by a subquery in ON",
                reason="It is called while a row is read.",
                way_round="Call it in a subquery of FROM, over the table it is of.",
            )
        given = called(join.this)
        if clock.asks(given.call) or any(map(clock.asks, on)):
            relation = self._beside_clock(relation, scope)
        alias = self.fresh(given.alias)
        inside = Scope(scope)
        inside.add(given.alias, given.columns, [Ref(alias, name) for name in given.columns])
        asked = joined_by([inside.resolve(part) for part in on]) if optional else None
        expansion = Expansion(alias, given.columns, scope.resolve(given.call), optional, given.numbered, asked)
        before = relation.columns
        expand = checked(lambda: Expand(relation, expansion, self.fresh("x")))
        scope.moved(dict(zip(before, expand.columns, strict=False)))
        scope.add(given.alias, given.columns, expand.columns[len(before) :])
        return expand if optional else self._asked(expand, on, scope, ctes)

    def _condition(self, join: exp.Join, scope: Scope, right: Scope) -> Expr | None:
        """What a join asks of its pairs; from then on the scope knows both sides."""
        using = [column.name for column in join.args.get("using") or ()]
        pairs = {name: (scope.shown(name), right.shown(name)) for name in using}
        scope.join(right, {name: _merged(*pair, join.side) for name, pair in pairs.items()})
        if using:
            return Expr.parse(" AND ".join(f"({one.sql} = {other.sql})" for one, other in pairs.values()))
        on = join.args.get("on")
        if on is not None and has_subquery(on):
            return joined_by([scope.resolve(part) for part in parts_of(on) if not has_subquery(part)])
        return scope.resolve(on) if on else None

    def _from_item(self, item: exp.Expression, scope: Scope, ctes: Ctes, given: Given | None) -> Relation:
        if isinstance(item, exp.Lateral) and isinstance(item.this, exp.Subquery):
            # Nothing stands before it that it could name.
            item = exp.Subquery(this=item.this.this.copy(), alias=item.args["alias"].copy())
        if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select | exp.SetOperation | exp.Values):
            relation = self._derived(item, scope, ctes, given)
        elif isinstance(item, exp.Values):
            relation = self.query(item, ctes)
            self._name(item, relation, scope)
        elif isinstance(item, exp.Subquery):  # parentheses around a join
            relation = self._parenthesised(item, scope, ctes, given)
        elif is_call(item):
            relation = self._expanded(Scan(ONE, self.fresh("one")), exp.Join(this=item), scope, ctes)
        else:
            assert isinstance(item, exp.Table), f"unexpected {type(item).__name__}"
            relation = self._table(item, scope, ctes)
        return self._joined(relation, item.args.get("joins") or [], scope, ctes, given)

    def _derived(self, item: exp.Subquery, scope: Scope, ctes: Ctes, given: Given | None) -> Relation:
        """A subquery in FROM: it may be given something by the query around this one."""
        if given is None or scope.outer is None or not given_columns(item.this, scope.outer):
            relation = self.query(item.this, ctes)
            self._name(item, relation, scope)
            return relation
        relation = self.query(item.this, ctes, scope.outer, given)
        shown, carried = refs_of(relation, len(given.values))
        scope.given = {value: Expr(ref.sql) for value, ref in zip(given.values, carried, strict=True)}
        scope.casts = given.casts
        self._name(item, relation, scope, len(shown))
        return relation

    def _parenthesised(self, item: exp.Subquery, scope: Scope, ctes: Ctes, given: Given | None) -> Relation:
        if not item.alias:
            return self._from_item(item.this, scope, ctes, given)
        # (a JOIN b USING (k)) AS j: its columns are j's, those of USING first.
        own = Scope(scope.outer, scope.select)
        relation = self._from_item(item.this, own, ctes, given)
        names = _unique([name for name, _ in own.output])
        outputs = [Named(name, expr) for name, (_, expr) in zip(names, own.output, strict=True)]
        kept = [Named(f"{GIVEN}{n}", expr) for n, expr in enumerate(own.given.values())]
        whole = Project(relation, (*outputs, *kept), self.fresh("j"))
        scope.given = {value: Expr.ref(whole.alias, one.name) for value, one in zip(own.given, kept, strict=True)}
        scope.casts = own.casts
        self._name(item, whole, scope, len(outputs))
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

    def _name(self, item: exp.Expression, relation: Relation, scope: Scope, shown: int | None = None) -> None:
        alias = item.args.get("alias")
        given = [column.name for column in alias.columns] if alias else []
        refs = relation.columns[:shown]
        names = [ref.column for ref in refs]
        names[: len(given)] = given
        scope.add(item.alias_or_name, tuple(names), refs)

    # -- GROUP BY --------------------------------------------------------------------------

    def _grouped(
        self,
        select: exp.Select,
        wanted: list[exp.Expression],
        relation: Relation,
        scope: Scope,
        ctes: Ctes,
        carried: list[Expr],
        given: Given | None,
    ) -> tuple[Relation, list[Expr]]:
        """The groups that HAVING keeps, and expressions over them; what is carried is a key too, and comes last."""
        subqueries = Subqueries(self, ctes)
        group, having = select.args.get("group"), select.args.get("having")
        if group and any(map(has_subquery, group.expressions)):
            raise Unsupported.construct(
                "GROUP BY a subquery", reason="Millstream does not maintain it yet.",
                way_round="Compute it in a subquery of FROM, and group by its column.",
            )  # fmt: skip
        before, written = relation.columns, group.expressions if group else ()
        relation, made = self.sets.expanded(relation, [scope.resolve(key) for key in written])
        moved = dict(zip(before, relation.columns, strict=False))
        scope.moved(moved)
        carried = [one.substitute({old: Expr(new.sql) for old, new in moved.items()}) for one in carried]
        keys = [Expr.of(unwrapped(scope.resolve(key).node)) for key in written]
        grouping = Grouping(tuple(dict.fromkeys([*keys, *carried])), self.fresh("g"), self.aggregates)
        grouping.made = {key.sql: column for key, column in zip(keys, made, strict=True)}
        # Subqueries inside aggregates are joined to the rows that are grouped, all others to the groups.
        rows, host = Host(relation, scope), Host(None, scope, grouping.over, rows=relation)
        grouping.known = host.known
        if clock.COLUMN in scope.columns:
            host.known.add(scope.columns[clock.COLUMN].alias)
        present = {Expr.of(unwrapped(key)).sql for key in (group.expressions if group else ())}
        asking = [*(numbered(one, present) for one in wanted), *(parts_of(having.this) if having else ())]
        every = list[Expr]()
        for node in asking:
            inside, found = subqueries.in_calls(node, rows)
            every.append(grouping.over(subqueries.expression(inside, host).substitute(found)))
        every = self.beside_groups(scope, host, every)
        exprs, asked = every[: len(wanted)], every[len(wanted) :]
        over = [grouping.over(one) for one in carried]
        groups = checked(lambda: grouping.relation(rows.built(relation)))
        # Without GROUP BY there is a row for each of the values, whatever there is to aggregate.
        aggregate = one_row_for_each(groups, given, self.fresh) if given and not group else groups
        return _filtered(checked(lambda: host.built(aggregate)), asked), [*exprs, *over]


_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "left", "FULL": "full"}
_INT4 = PgType(23, "integer", "int4")


def _stands_apart(join: exp.Join) -> bool:
    """Is it joined in a way that a function is not which is called for each row?"""
    on = join.args.get("on")
    asks = join.side == "LEFT" and on is not None and has_subquery(on)
    return join.side in ("RIGHT", "FULL") or bool(join.args.get("using")) or asks


def _brings_rows(select: exp.Select) -> bool:
    """Is there a RIGHT or FULL join in its FROM?"""
    return any(join.side in ("RIGHT", "FULL") for join in select.find_all(exp.Join))


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


def copied(part: exp.Expression | list[exp.Expression] | None) -> exp.Expression | list[exp.Expression] | None:
    """A part of a query of one's own."""
    return [one.copy() for one in part] if isinstance(part, list) else part.copy() if part else None


def joined_by(conditions: list[Expr | None]) -> Expr | None:
    """All that a join asks."""
    parts = [one for one in conditions if one is not None]
    return all_of(parts) if parts else None


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
