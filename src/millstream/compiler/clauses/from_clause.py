"""Build FROM: items become scans and joins, in the order in which they are written.

    a table, a view, a WITH query      a scan, or the relation of the query
    (q) AS s, LATERAL (q) AS s         a subquery; a LATERAL one is correlated with the items before it
    f(x) AS s                          a function, called for each row of the items before it
    a JOIN b ON ..., USING (k)         a join; RIGHT JOIN becomes a left join with its sides exchanged

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
    """The part of the query builder that a FROM clause calls."""

    def query(
        self, query: exp.Expression, ctes: Ctes, outer: Scope | None = None, bindings: Bindings | None = None
    ) -> Relation: ...

    def text(self, text: str) -> Relation: ...

    def table(self, schema: str, name: str) -> Table | str: ...


class FromClause:
    """Builds the FROM of one SELECT; `ctes` are the WITH queries it may name, `bindings` those of its subquery."""

    def __init__(self, builder: QueryBuilder, ctes: Ctes, bindings: Bindings | None) -> None:
        self.builder = builder
        self.ctes = ctes
        self.bindings = bindings
        self.fresh = builder.fresh
        self.subqueries = Subqueries(builder, ctes)

    def rows(self, select: exp.Select, scope: Scope) -> Relation:
        """Build the rows of FROM, and add their columns to the scope."""
        bindings = self.bindings
        clause = select.args.get("from_")
        joins = select.args.get("joins") or []
        if bindings is not None and (clause is None or is_function_item(clause.this)):
            alias = self.fresh("given")
            scope.bind(bindings.columns_under(alias), bindings.casts)
            called_first = [exp.Join(this=clause.this.copy())] if clause else []
            return self._join_items(bindings.distinct_values(alias), [*called_first, *joins], scope)
        if clause is None:
            return Scan(ONE, self.fresh("one"))
        relation = self._from_item(clause.this, scope)
        relation = self._join_items(relation, joins, scope)
        return (
            relation if bindings is None or scope.bindings else bindings.join_to(relation, scope, self.fresh("given"))
        )

    def _join_items(self, relation: Relation, joins: list[exp.Join], scope: Scope) -> Relation:
        """Join items to a relation, one after the other."""
        bindings = self.bindings
        for join in joins:
            if refers_to_earlier_items(join, scope):
                relation = self._join_items(relation, unnest_join(join.this), scope)
                continue
            if bindings and not scope.bindings and scope.outer and outer_columns(join, scope.outer):
                relation = bindings.join_to(relation, scope, self.fresh("given"))
            if is_function_item(join.this) and (join.this.find(exp.Column) or not _cannot_be_called_per_row(join)):
                relation = self._expand(relation, join, scope)
                continue
            made = None
            if isinstance(join.this, exp.Lateral):
                relation = filter_rows(relation, scope.take_ready_conditions())
                made = self._add_lateral_columns(relation, join, scope)
            relation = made or self._join_item(relation, join, scope)
        return relation

    def _add_lateral_columns(self, relation: Relation, join: exp.Join, scope: Scope) -> Relation | None:
        """Add the columns of a LATERAL that has exactly one row for each row; return None for any other LATERAL.

        None for RIGHT and FULL JOIN too: they preserve its row where no row is before it.
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
        made = [Named(f"f{n}", expr) for n, expr in enumerate(exprs)]
        whole = refuse_unresolved(lambda: Project(host.apply_joins(relation), (*kept, *made), self.fresh("x")))
        scope.rename(dict(zip(before, whole.columns, strict=False)))
        names = unique_names([output.alias_or_name for output in item.this.this.expressions])
        renamed = [column.name for column in item.args["alias"].columns]
        names[: len(renamed)] = renamed
        scope.add(item.alias, names, whole.columns[len(before) :])
        return whole

    def _join_item(self, relation: Relation, join: exp.Join, scope: Scope) -> Relation:
        """Join the next item to a relation."""
        own, correlations = Scope(scope.outer, scope.select), list[Expr]()
        if isinstance(join.this, exp.Lateral):
            correlated = self.builder.correlated(join.this.this, self.ctes, scope, relation)
            right, correlations = correlated.relation, list(correlated.correlations)
            self._name(join.this, right, own, len(correlated.outputs))
        else:
            right = self._from_item(join.this, own)
        if clock.mentions_clock(join.args.get("on")):
            # The clock goes to the nullable side, where the condition can become a filter.
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

    def _expand(self, relation: Relation, join: exp.Join, scope: Scope) -> Relation:
        """Call a function in FROM for each row of a relation."""
        on = and_operands(join.args["on"]) if join.args.get("on") else []
        on = [part for part in on if part != exp.true()]
        optional = join.side == "LEFT"
        if _cannot_be_called_per_row(join):
            raise Unsupported.construct(
                "a function over a table that is joined by USING, or LEFT JOIN by a subquery in ON",
                reason="It is called while a row is read.",
                way_round="Call it in a subquery of FROM, over the table it is of.",
            )
        function = function_item(join.this)
        if clock.mentions_clock(function.call) or any(map(clock.mentions_clock, on)):
            relation = join_clock(relation, scope, self.fresh)
        alias = self.fresh(function.alias)
        inside = Scope(scope)
        inside.add(function.alias, function.columns, [Ref(alias, name) for name in function.columns])
        condition = _joined_by([inside.resolve(part) for part in on]) if optional else None
        expansion = Expansion(
            alias, function.columns, scope.resolve(function.call), optional, function.numbered, condition
        )
        before = relation.columns
        expand = refuse_unresolved(lambda: Expand(relation, expansion, self.fresh("x")))
        scope.rename(dict(zip(before, expand.columns, strict=False)))
        scope.add(function.alias, function.columns, expand.columns[len(before) :])
        return expand if optional else filter_with_subqueries(expand, on, scope, self.subqueries)

    def _condition(self, join: exp.Join, scope: Scope, right_scope: Scope) -> Expr | None:
        """Return the join condition of ON or USING, without subqueries; add the right side's columns to the scope."""
        using = [column.name for column in join.args.get("using") or ()]
        pairs = {name: (scope.unqualified(name), right_scope.unqualified(name)) for name in using}
        scope.join(right_scope, {name: _merged(*pair, join.side) for name, pair in pairs.items()})
        if using:
            return Expr.parse(" AND ".join(f"({left.sql} = {right.sql})" for left, right in pairs.values()))
        on = join.args.get("on")
        if on is not None and has_subquery(on):
            return _joined_by([scope.resolve(part) for part in and_operands(on) if not has_subquery(part)])
        return scope.resolve(on) if on else None

    def _from_item(self, item: exp.Expression, scope: Scope) -> Relation:
        if isinstance(item, exp.Lateral) and isinstance(item.this, exp.Subquery):
            # The first item of FROM: a LATERAL has nothing before it to refer to.
            item = exp.Subquery(this=item.this.this.copy(), alias=item.args["alias"].copy())
        if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select | exp.SetOperation | exp.Values):
            relation = self._derived(item, scope)
        elif isinstance(item, exp.Values):
            relation = self.builder.query(item, self.ctes)
            self._name(item, relation, scope)
        elif isinstance(item, exp.Table) and isinstance(item.this, exp.Values):
            # The parser reads VALUES so if it is the first item of a parenthesized join.
            relation = self.builder.query(item.this, self.ctes)
            self._name(item, relation, scope)
        elif isinstance(item, exp.Subquery):  # parentheses around a join
            relation = self._parenthesised(item, scope)
        elif is_function_item(item):
            relation = self._expand(Scan(ONE, self.fresh("one")), exp.Join(this=item), scope)
        else:
            assert isinstance(item, exp.Table), f"unexpected {type(item).__name__}"
            relation = self._table(item, scope)
        return self._join_items(relation, item.args.get("joins") or [], scope)

    def _derived(self, item: exp.Subquery, scope: Scope) -> Relation:
        """Build a subquery in FROM, with the bindings if it refers to a column of an enclosing query."""
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
        renamed = [column.name for column in alias.columns] if alias else []
        refs = relation.columns[:shown]
        names = [ref.column for ref in refs]
        names[: len(renamed)] = renamed
        scope.add(item.alias_or_name, tuple(names), refs)


_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "left", "FULL": "full"}


def _cannot_be_called_per_row(join: exp.Join) -> bool:
    """Return True if a join cannot be made by calling a function for each row: RIGHT, FULL, USING, a subquery in ON."""
    on = join.args.get("on")
    has_outer_subquery = join.side == "LEFT" and on is not None and has_subquery(on)
    return join.side in ("RIGHT", "FULL") or bool(join.args.get("using")) or has_outer_subquery


def _joined_by(conditions: list[Expr | None]) -> Expr | None:
    """Return the AND of the conditions that are not None; None if there are none."""
    parts = [condition for condition in conditions if condition is not None]
    return all_of(parts) if parts else None


def _merged(left: Expr, right: Expr, side: str) -> Expr:
    """Return the merged column of USING."""
    if side == "FULL":
        return Expr.parse(f"COALESCE({left.sql}, {right.sql})")
    return right if side == "RIGHT" else left
