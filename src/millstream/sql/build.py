"""Turn PostgreSQL's canonical text of a query into a Relation.

The server has resolved names, so what is left is structure: FROM items become scans and joins,
WHERE a filter, GROUP BY an aggregate, HAVING a filter over it, the select list a projection.
Views and CTEs are built in place, as often as they are used. Every alias is made unique.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Expr, Ref, transform, unwrapped
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Filter,
    Join,
    Measure,
    Named,
    Project,
    Relation,
    Scan,
    UnionAll,
)  # fmt: skip
from millstream.algebra.table import Table
from millstream.algebra.types import PgType
from millstream.errors import Unsupported


class Names(Protocol):
    """What the builder asks of the catalog."""

    def table(self, schema: str, name: str) -> Table | str:
        """A table, or the canonical text of a view."""

    def types(self, select: str) -> tuple[PgType, ...]:
        """The types of a query's output."""


def build(text: str, names: Names) -> Relation:
    """The Relation of a canonical query text."""
    return _Builder(names).text(text)


# Columns in order, each under the name it is known by.
Columns = list[tuple[str, Ref]]

# A WITH query waits to be built each time it is used.
Ctes = Mapping[str, Callable[[], tuple[Relation, Columns]]]


@dataclass
class _Scope:
    """What the columns of one FROM clause are called: (alias, column) as written -> the unique Ref."""

    columns: dict[tuple[str, str], Ref] = field(default_factory=dict)
    output: Columns = field(default_factory=list)
    """What `*` gives: a column of USING once, and first."""

    def add(self, alias: str, columns: Columns) -> None:
        self.columns.update({(alias, name): ref for name, ref in columns})
        self.output += columns

    def join(self, right: _Scope, using: list[str]) -> None:
        """Take in what stands to the right."""
        self.columns.update(right.columns)
        merged = [next(one for one in self.output if one[0] == name) for name in using]
        self.output = merged + [one for one in (*self.output, *right.output) if one[0] not in using]

    def find(self, alias: str, name: str) -> Ref | None:
        if alias:
            return self.columns.get((alias, name))
        return next((ref for column, ref in self.output if column == name), None)


class _Builder:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.aliases: set[str] = set()

    # -- queries ---------------------------------------------------------------------------

    def text(self, text: str) -> Relation:
        """The relation of a canonical text: the query itself, or a view in it."""
        return self.query(parsed(text), {})

    def query(self, query: exp.Expression, ctes: Ctes) -> Relation:
        if isinstance(query, exp.Subquery):
            return self.query(query.this, ctes)
        ctes = self._with(query, ctes)
        if isinstance(query, exp.Union):
            return self._union(query, ctes)
        assert isinstance(query, exp.Select), f"unexpected {type(query).__name__}"
        return self._select(query, ctes)

    def _with(self, query: exp.Expression, outer: Ctes) -> Ctes:
        known = dict(outer)
        clause = query.args.get("with_")
        for cte in clause.expressions if clause else ():
            known[cte.alias] = self._waiting(cte, dict(known))
        return known

    def _waiting(self, cte: exp.Expression, ctes: Ctes) -> Callable[[], tuple[Relation, Columns]]:
        def built() -> tuple[Relation, Columns]:
            relation = self.query(cte.this, ctes)
            return relation, _renamed(cte, _columns(relation))

        return built

    def _union(self, query: exp.Union, ctes: Ctes) -> Relation:
        parts = [self.query(part, ctes) for part in (query.this, query.expression)]
        names = tuple(ref.column for ref in parts[0].columns)
        # Under names of our own: the user may give one name to two columns.
        listed = ", ".join(f"c{number}" for number in range(len(names)))
        types = self.names.types(f"SELECT * FROM ({_with_ctes(query)}) AS u ({listed})")
        return UnionAll(tuple(parts), names, types, self._fresh("u"))

    def _select(self, select: exp.Select, ctes: Ctes) -> Relation:
        scope = _Scope()
        relation = self._from(select, scope, ctes)
        if where := select.args.get("where"):
            relation = Filter(relation, self._expr(where.this, scope))
        items = _distinct([self._item(item, scope) for item in select.expressions])
        having = select.args.get("having")
        condition = self._expr(having.this, scope) if having else None
        if _aggregates(select):
            return self._grouped(select, relation, items, condition, scope)
        return Project(relation, tuple(items), self._fresh("q"))

    def _item(self, item: exp.Expression, scope: _Scope) -> Named:
        body = item.this if isinstance(item, exp.Alias) else item
        return Named(item.alias_or_name, self._expr(body, scope))

    # -- FROM ------------------------------------------------------------------------------

    def _from(self, select: exp.Select, scope: _Scope, ctes: Ctes) -> Relation:
        clause = select.args.get("from_")
        if clause is None:
            raise Unsupported.construct(
                "a query without FROM",
                reason="It has no source that could change.",
                way_round="Put constants into a table, or add them in a view over the stream table.",
            )
        relation = self._from_item(clause.this, scope, ctes)
        return self._joined(relation, select.args.get("joins") or [], scope, ctes)

    def _joined(self, relation: Relation, joins: list[exp.Join], scope: _Scope, ctes: Ctes) -> Relation:
        for join in joins:
            right = _Scope()
            joined = self._from_item(join.this, right, ctes)
            using = [column.name for column in join.args.get("using") or ()]
            condition = _using(using, scope, right) if using else None
            scope.join(right, using)
            if on := join.args.get("on"):
                condition = self._expr(on, scope)
            relation = Join(relation, joined, condition)
        return relation

    def _from_item(self, item: exp.Expression, scope: _Scope, ctes: Ctes) -> Relation:
        if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select | exp.SetOperation):
            relation = self.query(item.this, ctes)
            scope.add(item.alias, _renamed(item, _columns(relation)))
        elif isinstance(item, exp.Subquery) and item.alias:  # a join with a name of its own, which hides those in it
            inner = _Scope()
            relation = self._from_item(item.this, inner, ctes)
            scope.add(item.alias, _renamed(item, inner.output))
        elif isinstance(item, exp.Subquery):  # parentheses around a join
            relation = self._from_item(item.this, scope, ctes)
        else:
            assert isinstance(item, exp.Table), f"unexpected {type(item).__name__} in FROM"
            relation = self._table(item, scope, ctes)
        return self._joined(relation, item.args.get("joins") or [], scope, ctes)

    def _table(self, item: exp.Table, scope: _Scope, ctes: Ctes) -> Relation:
        if not item.db and item.name in ctes:
            relation, columns = ctes[item.name]()
            scope.add(item.alias_or_name, _renamed(item, columns))
            return relation
        found = self.names.table(item.db, item.name)
        if isinstance(found, str):
            relation = self.text(found)
            scope.add(item.alias_or_name, _renamed(item, _columns(relation)))
            return relation
        if item.args.get("only"):
            raise Unsupported.construct(
                "FROM ONLY", reason="Changes of the children could not be told apart.", way_round="Leave ONLY out."
            )
        scan = Scan(found, self._fresh(item.alias_or_name))
        scope.add(item.alias_or_name, _renamed(item, _columns(scan)))
        return scan

    def _fresh(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.aliases:
            number += 1
            name = f"{wanted}_{number}"
        self.aliases.add(name)
        return name

    # -- GROUP BY --------------------------------------------------------------------------

    def _grouped(
        self, select: exp.Select, relation: Relation, items: list[Named], having: Expr | None, scope: _Scope
    ) -> Relation:
        group = select.args.get("group")
        keys = [self._expr(key, scope) for key in (group.expressions if group else ())]
        grouping = _Grouping(tuple(dict.fromkeys(Expr.of(unwrapped(key.node)) for key in keys)), self._fresh("g"))
        outputs = tuple(Named(item.name, grouping.over(item.expr)) for item in items)
        condition = grouping.over(having) if having else None
        aggregate: Relation = grouping.relation(relation)
        if condition is not None:
            aggregate = Filter(aggregate, condition)
        return Project(aggregate, outputs, self._fresh("q"))

    # -- expressions -----------------------------------------------------------------------

    def _expr(self, node: exp.Expression, scope: _Scope) -> Expr:
        def resolve(part: exp.Expression) -> exp.Expression:
            if isinstance(part, exp.Column):
                return self._column(part, scope)
            return part

        return Expr.of(transform(unwrapped(node), resolve))

    def _column(self, column: exp.Column, scope: _Scope) -> exp.Expression:
        if isinstance(column.this, exp.Star):
            raise Unsupported.construct(
                "a reference to a whole row", reason="Its type is the table's own.", way_round="Name the columns."
            )
        found = scope.find(column.table, column.name)
        if found is None:
            raise Unsupported.construct(
                f'system column "{column.name}"',
                reason="It tells where a row is stored, which changes without a change in the data.",
                way_round="Use a column of the table.",
            )
        return Expr(found.sql).node


class _Grouping:
    """Rewrites expressions over a group: keys and aggregate calls become columns of the Aggregate."""

    def __init__(self, keys: tuple[Expr, ...], alias: str) -> None:
        self.alias = alias
        self.keys = {key.sql: f"k{number}" for number, key in enumerate(keys)}
        self.measures: dict[Call, str] = {}

    def over(self, expression: Expr) -> Expr:
        return Expr.of(self._rewritten(expression.node))

    def relation(self, relation: Relation) -> Aggregate:
        keys = tuple(Named(name, Expr(text)) for text, name in self.keys.items())
        measures = tuple(Measure(name, call) for call, name in self.measures.items())
        return Aggregate(relation, keys, measures, self.alias)

    def _rewritten(self, node: exp.Expression) -> exp.Expression:
        if name := self.keys.get(Expr.of(unwrapped(node)).sql):
            return Expr.ref(self.alias, name).node
        if isinstance(node, exp.Column):
            # Not a key, yet allowed: it depends on a primary key among the keys, so it may be one too.
            name = self.keys.setdefault(Expr.of(node).sql, f"k{len(self.keys)}")
            return Expr.ref(self.alias, name).node
        if isinstance(node, exp.Filter | exp.AggFunc):
            call = _call(node)
            name = self.measures.setdefault(call, f"m{len(self.measures)}")
            return Expr.ref(self.alias, name).node
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expression):
                node.set(key, self._rewritten(value))
            elif isinstance(value, list):
                node.set(key, [self._rewritten(v) if isinstance(v, exp.Expression) else v for v in value])
        return node


def _call(node: exp.Expression) -> Call:
    if isinstance(node, exp.Filter):
        inner = _call(node.this)
        return Call(inner.function, inner.argument, Expr.of(unwrapped(node.expression.this)))
    function = node.sql_name().lower() if isinstance(node, exp.Func) else node.name.lower()
    argument = node.this
    if argument is None or isinstance(argument, exp.Star):
        return Call(function, None)
    return Call(function, Expr.of(unwrapped(argument)))


def _aggregates(select: exp.Select) -> bool:
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(
        node.find_ancestor(exp.Select) is select for item in select.expressions for node in item.find_all(exp.AggFunc)
    )


def _columns(relation: Relation) -> Columns:
    return [(ref.column, ref) for ref in relation.columns]


def _renamed(item: exp.Expression, columns: Columns) -> Columns:
    """Under the names that stand behind the alias, `AS q (a, b)`; what they do not reach keeps its own."""
    alias = item.args.get("alias")
    given = [column.name for column in alias.columns] if alias else []
    return [(given[n] if n < len(given) else name, ref) for n, (name, ref) in enumerate(columns)]


def _distinct(items: list[Named]) -> list[Named]:
    """Each under a name of its own: `SELECT sum(a), sum(b)` has two named sum, told apart by their place."""
    taken, found = {item.name for item in items}, list[Named]()
    for item in items:
        name, number = item.name, 1
        while name in {one.name for one in found} or (number > 1 and name in taken):
            number += 1
            name = f"{item.name}_{number}"
        found.append(Named(name, item.expr))
    return found


def _using(names: list[str], left: _Scope, right: _Scope) -> Expr:
    pairs = [(left.find("", name), right.find("", name)) for name in names]
    return Expr(" AND ".join(f"({one.sql} = {other.sql})" for one, other in pairs if one and other))


def _with_ctes(query: exp.Union) -> str:
    """The union's text with the WITH clauses around it, so that the server can type it on its own."""
    copy = query.copy()
    clauses = [node.args["with_"] for node in _ancestors(query) if node.args.get("with_")]
    ctes = [cte.copy() for clause in reversed(clauses) for cte in clause.expressions]
    own = copy.args.get("with_")
    if ctes:
        copy.set("with_", exp.With(expressions=ctes + (list(own.expressions) if own else [])))
    return printed(copy)


def _ancestors(node: exp.Expression) -> list[exp.Expression]:
    found, parent = list[exp.Expression](), node.parent
    while isinstance(parent, exp.Expression):
        found.append(parent)
        parent = parent.parent
    return found
