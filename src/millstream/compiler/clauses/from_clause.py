"""FROM: items become scans and joins, each made and joined in the order in which it is written.

    a table, a view, a WITH query      a scan, or what it stands for
    (q) AS s, LATERAL (q) AS s         a subquery; LATERAL is tied to the rows so far
    f(x) AS s                          a function, called for each of the rows so far
    a JOIN b ON ..., USING (k)         a join; with RIGHT the sides change places

Views and WITH queries are built in place, as often as they are used. Every alias is made unique.
"""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, all_of, unwrapped
from millstream.algebra.relation import Expand, Expansion, Join, JoinKind, Named, Project, Relation, Scan
from millstream.algebra.table import Table
from millstream.compiler.clauses import clock
from millstream.compiler.clauses.clock_join import join_clock
from millstream.compiler.clauses.conditions import filter_rows, filter_with_subqueries
from millstream.compiler.clauses.from_functions import function_item, is_function_item
from millstream.compiler.clauses.select_list import unique_names
from millstream.compiler.clauses.values import ONE
from millstream.compiler.clauses.with_queries import Ctes
from millstream.compiler.decorrelate.attach import Host, SubqueryBuilder
from millstream.compiler.decorrelate.bindings import Bindings, binding_name, output_refs
from millstream.compiler.decorrelate.clauses import bind_join_sides, merge_bindings_after_join
from millstream.compiler.decorrelate.correlation import outer_columns
from millstream.compiler.decorrelate.find import has_subquery
from millstream.compiler.decorrelate.on_clause import OnSide, join_on_subqueries
from millstream.compiler.decorrelate.scalar import one_row_columns
from millstream.compiler.decorrelate.scope import Scope, refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries
from millstream.compiler.decorrelate.syntax import and_operands, refers_to_earlier_items, unnest_join
from millstream.errors import Unsupported


class QueryBuilder(SubqueryBuilder, Protocol):
    """What a FROM clause asks of the builder of queries, besides."""

    def query(
        self, query: exp.Expression, ctes: Ctes, outer: Scope | None = None, bindings: Bindings | None = None
    ) -> Relation: ...

    def text(self, text: str) -> Relation: ...

    def table(self, schema: str, name: str) -> Table | str: ...


class FromClause:
    """Builds the FROM of one SELECT, with the WITH queries in sight and what a subquery is given."""

    def __init__(self, builder: QueryBuilder, ctes: Ctes, bindings: Bindings | None) -> None:
        self.builder = builder
        self.ctes = ctes
        self.bindings = bindings
        self.fresh = builder.fresh
        self.subqueries = Subqueries(builder, ctes)

    def rows(self, select: exp.Select, scope: Scope) -> Relation:
        """The rows of a SELECT's FROM; from then on the scope knows their columns."""
        bindings = self.bindings
        clause = select.args.get("from_")
        joins = select.args.get("joins") or []
        if bindings is not None and (clause is None or is_function_item(clause.this)):
            alias = self.fresh("given")
            scope.bind(bindings.columns_under(alias), bindings.casts)
            called_first = [exp.Join(this=clause.this.copy())] if clause else []
            return self._joined(bindings.distinct_values(alias), [*called_first, *joins], scope)
        if clause is None:
            return Scan(ONE, self.fresh("one"))
        relation = self._from_item(clause.this, scope)
        relation = self._joined(relation, joins, scope)
        return (
            relation if bindings is None or scope.bindings else bindings.join_to(relation, scope, self.fresh("given"))
        )

    def _joined(self, relation: Relation, joins: list[exp.Join], scope: Scope) -> Relation:
        """The rows so far, joined to one item after the other."""
        bindings = self.bindings
        for join in joins:
            if refers_to_earlier_items(join, scope):
                relation = self._joined(relation, unnest_join(join.this), scope)
                continue
            if bindings and not scope.bindings and scope.outer and outer_columns(join, scope.outer):
                relation = bindings.join_to(relation, scope, self.fresh("given"))
            if is_function_item(join.this) and (join.this.find(exp.Column) or not _stands_apart(join)):
                relation = self._expanded(relation, join, scope)
                continue
            made = None
            if isinstance(join.this, exp.Lateral):
                relation = filter_rows(relation, scope.take_ready_conditions())
                made = self._computed(relation, join, scope)
            relation = made or self._with_item(relation, join, scope)
        return relation

    def _computed(self, relation: Relation, join: exp.Join, scope: Scope) -> Relation | None:
        """LATERAL that has one row for each row so far: more columns of it. None of any other.

        RIGHT and FULL JOIN keep its row where there is no row so far.
        """
        item = join.this
        conditional = join.args.get("on") is not None and unwrapped(join.args["on"]) != exp.true()
        if conditional or join.side in ("RIGHT", "FULL"):
            return None
        host = Host(relation, scope)
        exprs = one_row_columns(self.subqueries, item.this.this, host)
        if exprs is None:
            return None
        before = relation.columns
        kept = [Named(f"c{n}", Expr(ref.sql)) for n, ref in enumerate(before)]
        made = [Named(f"f{n}", one) for n, one in enumerate(exprs)]
        whole = refuse_unresolved(lambda: Project(host.apply_joins(relation), (*kept, *made), self.fresh("x")))
        scope.rename(dict(zip(before, whole.columns, strict=False)))
        names = unique_names([one.alias_or_name for one in item.this.this.expressions])
        bindings = [column.name for column in item.args["alias"].columns]
        names[: len(bindings)] = bindings
        scope.add(item.alias, names, whole.columns[len(before) :])
        return whole

    def _with_item(self, relation: Relation, join: exp.Join, scope: Scope) -> Relation:
        """The rows so far joined to the next item."""
        own, correlations = Scope(scope.outer, scope.select), list[Expr]()
        if isinstance(join.this, exp.Lateral):
            correlated = self.builder.correlated(join.this.this, self.ctes, scope, relation)
            right, correlations = correlated.relation, list(correlated.correlations)
            self._name(join.this, right, own, len(correlated.outputs))
        else:
            right = self._from_item(join.this, own)
        if clock.mentions_clock(join.args.get("on")):
            # On the optional side, where what it decides is a filter.
            if join.side == "RIGHT":
                relation = join_clock(relation, scope, self.fresh)
            else:
                right = join_clock(right, own, self.fresh)
        left_side, right_side = OnSide(relation, scope), OnSide(right, own)
        if self.bindings is not None:
            correlations += bind_join_sides(left_side, right_side, join.side, self.bindings, self.fresh)
        preserved, nullable = (right_side, left_side) if join.side == "RIGHT" else (left_side, right_side)
        on = and_operands(join.args["on"]) if join.args.get("on") else []
        if join.side:
            full = join.side == "FULL"
            correlations += join_on_subqueries(on, preserved, nullable, self.subqueries, full=full)
        condition = _joined_by([self._condition(join, scope, own), *correlations])
        merge_bindings_after_join(scope, own, join.side)
        kind = _KINDS.get(join.side, "inner")
        whole = refuse_unresolved(lambda: Join(preserved.rows, nullable.rows, condition, kind))
        if join.side:
            return whole
        return filter_with_subqueries(whole, list(filter(has_subquery, on)), scope, self.subqueries)

    def _expanded(self, relation: Relation, join: exp.Join, scope: Scope) -> Relation:
        """A function in FROM: the rows it makes of each row so far."""
        on = and_operands(join.args["on"]) if join.args.get("on") else []
        on = [part for part in on if part != exp.true()]
        optional = join.side == "LEFT"
        if _stands_apart(join):
            raise Unsupported.construct(
                "a function over a table that is joined by USING, or LEFT JOIN by a subquery in ON",
                reason="It is called while a row is read.",
                way_round="Call it in a subquery of FROM, over the table it is of.",
            )
        bindings = function_item(join.this)
        if clock.mentions_clock(bindings.call) or any(map(clock.mentions_clock, on)):
            relation = join_clock(relation, scope, self.fresh)
        alias = self.fresh(bindings.alias)
        inside = Scope(scope)
        inside.add(bindings.alias, bindings.columns, [Ref(alias, name) for name in bindings.columns])
        condition = _joined_by([inside.resolve(part) for part in on]) if optional else None
        expansion = Expansion(
            alias, bindings.columns, scope.resolve(bindings.call), optional, bindings.numbered, condition
        )
        before = relation.columns
        expand = refuse_unresolved(lambda: Expand(relation, expansion, self.fresh("x")))
        scope.rename(dict(zip(before, expand.columns, strict=False)))
        scope.add(bindings.alias, bindings.columns, expand.columns[len(before) :])
        return expand if optional else filter_with_subqueries(expand, on, scope, self.subqueries)

    def _condition(self, join: exp.Join, scope: Scope, right: Scope) -> Expr | None:
        """What a join asks of its pairs; from then on the scope knows both sides."""
        using = [column.name for column in join.args.get("using") or ()]
        pairs = {name: (scope.unqualified(name), right.unqualified(name)) for name in using}
        scope.join(right, {name: _merged(*pair, join.side) for name, pair in pairs.items()})
        if using:
            return Expr.parse(" AND ".join(f"({one.sql} = {other.sql})" for one, other in pairs.values()))
        on = join.args.get("on")
        if on is not None and has_subquery(on):
            return _joined_by([scope.resolve(part) for part in and_operands(on) if not has_subquery(part)])
        return scope.resolve(on) if on else None

    def _from_item(self, item: exp.Expression, scope: Scope) -> Relation:
        if isinstance(item, exp.Lateral) and isinstance(item.this, exp.Subquery):
            # Nothing stands before it that it could name.
            item = exp.Subquery(this=item.this.this.copy(), alias=item.args["alias"].copy())
        if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select | exp.SetOperation | exp.Values):
            relation = self._derived(item, scope)
        elif isinstance(item, exp.Values):
            relation = self.builder.query(item, self.ctes)
            self._name(item, relation, scope)
        elif isinstance(item, exp.Table) and isinstance(item.this, exp.Values):
            # So it is read where it stands first in a join in parentheses.
            relation = self.builder.query(item.this, self.ctes)
            self._name(item, relation, scope)
        elif isinstance(item, exp.Subquery):  # parentheses around a join
            relation = self._parenthesised(item, scope)
        elif is_function_item(item):
            relation = self._expanded(Scan(ONE, self.fresh("one")), exp.Join(this=item), scope)
        else:
            assert isinstance(item, exp.Table), f"unexpected {type(item).__name__}"
            relation = self._table(item, scope)
        return self._joined(relation, item.args.get("joins") or [], scope)

    def _derived(self, item: exp.Subquery, scope: Scope) -> Relation:
        """A subquery in FROM: it may be given something by the query around this one."""
        bindings = self.bindings
        if bindings is None or scope.outer is None or not outer_columns(item.this, scope.outer):
            relation = self.builder.query(item.this, self.ctes)
            self._name(item, relation, scope)
            return relation
        relation = self.builder.query(item.this, self.ctes, scope.outer, bindings)
        shown, binding_refs = output_refs(relation, len(bindings.values))
        columns = {value: Expr(ref.sql) for value, ref in zip(bindings.values, binding_refs, strict=True)}
        scope.bind(columns, bindings.casts)
        self._name(item, relation, scope, len(shown))
        return relation

    def _parenthesised(self, item: exp.Subquery, scope: Scope) -> Relation:
        if not item.alias:
            return self._from_item(item.this, scope)
        # (a JOIN b USING (k)) AS j: its columns are j's, those of USING first.
        own = Scope(scope.outer, scope.select)
        relation = self._from_item(item.this, own)
        names = unique_names([name for name, _ in own.output])
        outputs = [Named(name, expr) for name, (_, expr) in zip(names, own.output, strict=True)]
        kept = [Named(binding_name(n), expr) for n, expr in enumerate(own.bindings.values())]
        whole = Project(relation, (*outputs, *kept), self.fresh("j"))
        columns = {value: Expr.ref(whole.alias, named.name) for value, named in zip(own.bindings, kept, strict=True)}
        scope.bind(columns, own.casts)
        self._name(item, whole, scope, len(outputs))
        return whole

    def _table(self, item: exp.Table, scope: Scope) -> Relation:
        if not item.db and item.name in self.ctes:
            relation = self.ctes[item.name].relation()
            self._name(item, relation, scope)
            return relation
        found = self.builder.table(item.db, item.name)
        if isinstance(found, str):
            relation = self.builder.text(found)
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
        bindings = [column.name for column in alias.columns] if alias else []
        refs = relation.columns[:shown]
        names = [ref.column for ref in refs]
        names[: len(bindings)] = bindings
        scope.add(item.alias_or_name, tuple(names), refs)


_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "left", "FULL": "full"}


def _stands_apart(join: exp.Join) -> bool:
    """Is it joined in a way that a function is not which is called for each row?"""
    on = join.args.get("on")
    asks = join.side == "LEFT" and on is not None and has_subquery(on)
    return join.side in ("RIGHT", "FULL") or bool(join.args.get("using")) or asks


def _joined_by(conditions: list[Expr | None]) -> Expr | None:
    """All that a join asks."""
    parts = [one for one in conditions if one is not None]
    return all_of(parts) if parts else None


def _merged(one: Expr, other: Expr, side: str) -> Expr:
    """What a column of USING is."""
    if side == "FULL":
        return Expr.parse(f"COALESCE({one.sql}, {other.sql})")
    return other if side == "RIGHT" else one
