"""Build FROM: items become scans and joins, in the order in which they are written.

    a table, a view, a WITH query      a scan, or the relation of the query
    (q) AS s, LATERAL (q) AS s         a subquery; a LATERAL one is correlated with the items before it
    f(x) AS s                          a function, called for each row of the items before it
    a JOIN b ON ..., USING (k)         a join; RIGHT JOIN becomes a left join with its sides exchanged

Views and WITH queries are built in place, as often as they are used. Every alias is made unique.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.algebra.expr import Expr, Ref, all_of, unwrapped
from millstream.algebra.positions import position_of, set_positions
from millstream.algebra.relation import (
    Expand,
    Expansion,
    Join,
    JoinKind,
    Named,
    Project,
    Relation,
    Scan,
)
from millstream.algebra.table import Table
from millstream.compiler.clauses import clock
from millstream.compiler.clauses.clock_join import join_clock
from millstream.compiler.clauses.conditions import filter_rows, filter_with_subqueries
from millstream.compiler.clauses.from_functions import FunctionItem, function_item, is_function_item
from millstream.compiler.clauses.select_list import unique_names
from millstream.compiler.clauses.values import ONE
from millstream.compiler.clauses.with_queries import Ctes
from millstream.compiler.decorrelate.attach import Host, SubqueryBuilder
from millstream.compiler.decorrelate.bindings import Bindings, binding_name, output_refs
from millstream.compiler.decorrelate.clauses import BoundSides, bind_join_sides, bindings_above_join
from millstream.compiler.decorrelate.correlation import outer_columns
from millstream.compiler.decorrelate.find import has_subquery
from millstream.compiler.decorrelate.on_clause import OnSide, OnSides, join_on_subqueries
from millstream.compiler.decorrelate.scalar import one_row_columns
from millstream.compiler.decorrelate.scope import Scope, ScopedRows, refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries
from millstream.compiler.decorrelate.syntax import (
    and_operands,
    refers_to_earlier_items,
    unnest_join,
)
from millstream.errors import QueryError, Unsupported


class QueryBuilder(SubqueryBuilder, Protocol):
    """The part of the query builder that a FROM clause calls."""

    def query(
        self,
        query: exp.Expression,
        ctes: Ctes,
        outer: Scope | None = None,
        bindings: Bindings | None = None,
    ) -> Relation: ...

    def tree(self, tree: exp.Expression) -> Relation: ...

    def table(self, schema: str, name: str) -> Table | str: ...


class FromClause:
    """Builds the FROM of one SELECT; `ctes` are the WITH queries it may name, `bindings` those of
    its subquery.
    """

    def __init__(self, builder: QueryBuilder, ctes: Ctes, bindings: Bindings | None) -> None:
        self.builder = builder
        self.ctes = ctes
        self.bindings = bindings
        self.fresh = builder.fresh
        self.subqueries = Subqueries(builder, ctes)

    def rows(self, select: exp.Select, scope: Scope) -> ScopedRows:
        """Build the rows of FROM, whose columns extend the given scope of the SELECT."""
        bindings = self.bindings
        clause = select.args.get("from_")
        joins = select.args.get("joins") or []
        if bindings is not None and (clause is None or is_function_item(clause.this)):
            alias = self.fresh("given")
            bound = ScopedRows(bindings.distinct_values(alias), bindings.scope_under(scope, alias))
            called_first = [exp.Join(this=clause.this.copy())] if clause else []
            return self._join_items(bound, [*called_first, *joins])
        if clause is None:
            return ScopedRows(Scan(ONE, self.fresh("one")), scope)
        rows = self._join_items(self._from_item(clause.this, scope), joins)
        return (
            rows
            if bindings is None or rows.scope.bindings
            else bindings.join_to(rows, self.fresh("given"))
        )

    def _join_items(self, rows: ScopedRows, joins: Sequence[exp.Join]) -> ScopedRows:
        for join in joins:
            rows = self._join_next(rows, join)
        return rows

    def _join_next(self, rows: ScopedRows, join: exp.Join) -> ScopedRows:
        """Join the next item to the rows of the items before it."""
        if refers_to_earlier_items(join, rows.scope):
            return self._join_items(rows, unnest_join(join.this))
        if self._needs_bindings(join, rows.scope):
            assert self.bindings is not None
            rows = self.bindings.join_to(rows, self.fresh("given"))
        if is_function_item(join.this) and (
            join.this.find(exp.Column) or not _cannot_be_called_per_row(join)
        ):
            return self._expand(rows, join)
        if isinstance(join.this, exp.Lateral):
            rows = _filter_early(rows)
            return self._add_lateral_columns(rows, join) or self._join_item(rows, join)
        return self._join_item(rows, join)

    def _needs_bindings(self, join: exp.Join, scope: Scope) -> bool:
        """Return True if an item refers to an outer column and no item before it has been joined to
        the bindings.
        """
        if self.bindings is None or scope.bindings or scope.outer is None:
            return False
        return bool(outer_columns(join, scope.outer))

    def _add_lateral_columns(self, rows: ScopedRows, join: exp.Join) -> ScopedRows | None:
        """Add the columns of a LATERAL that has exactly one row for each row; return None for any
        other LATERAL.

        None for RIGHT and FULL JOIN too: they preserve its row where no row is before it.
        """
        item = join.this
        query = item.this.this
        conditional = join.args.get("on") is not None and unwrapped(join.args["on"]) != exp.true()
        if conditional or join.side in ("RIGHT", "FULL"):
            return None
        host = Host(rows.rows, rows.scope)
        exprs = one_row_columns(self.subqueries, query, host)
        if exprs is None:
            return None
        before = rows.rows.columns
        carried = [Named(f"c{number}", Expr(ref.sql)) for number, ref in enumerate(before)]
        added = [Named(f"f{number}", expr) for number, expr in enumerate(exprs)]
        joined = refuse_unresolved(lambda: host.apply_joins(rows.rows))
        whole = refuse_unresolved(lambda: Project(joined, (*carried, *added), self.fresh("x")))
        scope = rows.scope.with_renamed(dict(zip(before, whole.columns, strict=False)))
        names = _column_names(
            unique_names([output.alias_or_name for output in query.expressions]), item
        )
        return ScopedRows(
            whole, scope.with_columns(item.alias, names, whole.columns[len(before) :])
        )

    def _join_item(self, rows: ScopedRows, join: exp.Join) -> ScopedRows:
        """Join the next item to the rows of the items before it, by its ON or USING."""
        right, correlations = self._right_side(rows, join)
        sides = self._join_clock_of_on(BoundSides(rows, right), join)
        if self.bindings is not None:
            sides = bind_join_sides(sides, join.side, self.bindings, self.fresh)
        on = and_operands(join.args["on"]) if join.args.get("on") else []
        left, right = (
            OnSide(sides.left.rows, sides.left.scope),
            OnSide(sides.right.rows, sides.right.scope),
        )
        on_sides = OnSides(right, left) if join.side == "RIGHT" else OnSides(left, right)
        if join.side:
            on_sides = join_on_subqueries(on, on_sides, self.subqueries, full=join.side == "FULL")
        scope = _scope_of_join(join, left.scope, right.scope)
        conditions = [*correlations, *sides.conditions, *on_sides.conditions]
        condition = _joined_by([_condition(join, left.scope, right.scope, scope), *conditions])
        scope = bindings_above_join(scope, right.scope, join.side)
        preserved, nullable = on_sides.preserved.rows, on_sides.nullable.rows
        kind = _KINDS.get(join.side, "inner")
        joined = ScopedRows(
            refuse_unresolved(lambda: Join(preserved, nullable, condition, kind)), scope
        )
        if join.side:
            return joined
        return filter_with_subqueries(joined, list(filter(has_subquery, on)), self.subqueries)

    def _right_side(self, rows: ScopedRows, join: exp.Join) -> tuple[ScopedRows, tuple[Expr, ...]]:
        """Build the right side of a join; for a LATERAL, return also the conditions that correlate
        it.
        """
        empty = rows.scope.empty()
        if not isinstance(join.this, exp.Lateral):
            return self._from_item(join.this, empty), ()
        correlated = self.builder.decorrelate(join.this.this, self.ctes, rows.scope, rows.rows)
        right = _name_columns(join.this, correlated.relation, empty, len(correlated.outputs))
        return right, correlated.correlations

    def _join_clock_of_on(self, sides: BoundSides, join: exp.Join) -> BoundSides:
        """Join the clock to the nullable side if ON reads the time: there the condition can become
        a filter.
        """
        if not clock.mentions_clock(join.args.get("on")):
            return sides
        if join.side == "RIGHT":
            return replace(sides, left=join_clock(sides.left, self.fresh))
        return replace(sides, right=join_clock(sides.right, self.fresh))

    def _expand(self, rows: ScopedRows, join: exp.Join) -> ScopedRows:
        """Call a function in FROM for each row of the items before it."""
        on = (
            [part for part in and_operands(join.args["on"]) if part != exp.true()]
            if join.args.get("on")
            else []
        )
        optional = join.side == "LEFT"
        if _cannot_be_called_per_row(join):
            raise Unsupported.construct(
                "a function in FROM that is joined by USING, or by LEFT JOIN with a subquery in ON",
                reason="Millstream calls such a function while it reads the rows of the table.",
                way_round="Join the table and the function in a subquery of FROM.",
                node=join.this,
            )
        function = function_item(join.this)
        if clock.mentions_clock(function.call) or any(map(clock.mentions_clock, on)):
            rows = join_clock(rows, self.fresh)
        alias = self.fresh(function.alias)
        expansion = _expansion(function, alias, rows.scope, on if optional else None)
        before = rows.rows.columns
        expand = refuse_unresolved(lambda: Expand(rows.rows, expansion, self.fresh("x")))
        scope = rows.scope.with_renamed(dict(zip(before, expand.columns, strict=False)))
        scope = scope.with_columns(function.alias, function.columns, expand.columns[len(before) :])
        expanded = ScopedRows(expand, scope)
        return expanded if optional else filter_with_subqueries(expanded, on, self.subqueries)

    # -- items -----------------------------------------------------------------------------

    def _from_item(self, item: exp.Expression, scope: Scope) -> ScopedRows:
        """Build one item, with the joins that hang on it; its columns extend the given scope."""
        rows = self._bare_item(item, scope)
        return self._join_items(rows, item.args.get("joins") or [])

    def _bare_item(self, item: exp.Expression, scope: Scope) -> ScopedRows:
        if isinstance(item, exp.Lateral) and isinstance(item.this, exp.Subquery):
            # The first item of FROM: a LATERAL has nothing before it to refer to.
            item = exp.Subquery(this=item.this.this.copy(), alias=item.args["alias"].copy())
        if isinstance(item, exp.Subquery) and isinstance(
            item.this, exp.Select | exp.SetOperation | exp.Values
        ):
            return self._derived_table(item, scope)
        if isinstance(item, exp.Subquery):  # parentheses around a join
            return self._parenthesized_join(item, scope)
        if values := _values_of(item):
            return _name_columns(item, self.builder.query(values, self.ctes), scope)
        if is_function_item(item):
            return self._expand(
                ScopedRows(Scan(ONE, self.fresh("one")), scope), exp.Join(this=item)
            )
        assert isinstance(item, exp.Table), f"unexpected {type(item).__name__}"
        return self._table(item, scope)

    def _derived_table(self, item: exp.Subquery, scope: Scope) -> ScopedRows:
        """Build a subquery in FROM, with the bindings if it refers to a column of an enclosing
        query.
        """
        bindings = self.bindings
        if bindings is None or scope.outer is None or not outer_columns(item.this, scope.outer):
            return _name_columns(item, self.builder.query(item.this, self.ctes), scope)
        relation = self.builder.query(item.this, self.ctes, scope.outer, bindings)
        shown, binding_refs = output_refs(relation, len(bindings.values))
        columns = {
            value: Expr(ref.sql) for value, ref in zip(bindings.values, binding_refs, strict=True)
        }
        return _name_columns(
            item, relation, scope.with_bindings(columns, bindings.casts), len(shown)
        )

    def _parenthesized_join(self, item: exp.Subquery, scope: Scope) -> ScopedRows:
        if not item.alias:
            return self._from_item(item.this, scope)
        # (a JOIN b USING (k)) AS j: its columns are j's, those of USING first.
        inner = self._from_item(item.this, scope.empty())
        own = inner.scope
        names = unique_names([name for name, _ in own.output])
        outputs = [Named(name, expr) for name, (_, expr) in zip(names, own.output, strict=True)]
        bindings = [
            Named(binding_name(number), expr) for number, expr in enumerate(own.bindings.values())
        ]
        whole = Project(inner.rows, (*outputs, *bindings), self.fresh("j"))
        named = zip(own.bindings, bindings, strict=True)
        columns = {value: Expr.ref(whole.alias, binding.name) for value, binding in named}
        return _name_columns(item, whole, scope.with_bindings(columns, own.casts), len(outputs))

    def _table(self, item: exp.Table, scope: Scope) -> ScopedRows:
        if not item.db and item.name in self.ctes:
            return _name_columns(item, self.ctes[item.name].relation(), scope)
        found = self._look_up(item)
        if isinstance(found, str):
            # What is refused in a view is shown where the view is read.
            view = set_positions(parsed(found), position_of(item))
            return _name_columns(item, self.builder.tree(view), scope)
        if item.args.get("only"):
            raise Unsupported.construct(
                "FROM ONLY",
                reason="Changes of the children could not be told apart.",
                way_round="Leave ONLY out.",
                node=item,
            )
        return _name_columns(item, Scan(found, self.fresh(item.alias_or_name)), scope)

    def _look_up(self, item: exp.Table) -> Table | str:
        """Return the table of that name, or the text of the view; what is refused in it is refused
        here.
        """
        try:
            return self.builder.table(item.db, item.name)
        except QueryError as error:
            error.about(item)
            raise


def _filter_early(rows: ScopedRows) -> ScopedRows:
    """Filter rows by the conjuncts of WHERE whose columns are all in scope: a LATERAL is computed
    for fewer rows.
    """
    ready = rows.scope.ready_conditions()
    relation = filter_rows(rows.rows, [rows.scope.resolve(condition) for condition in ready])
    later = [condition for condition in rows.scope.early_conditions if condition not in ready]
    return ScopedRows(relation, rows.scope.with_early_conditions(later))


def _scope_of_join(join: exp.Join, left: Scope, right: Scope) -> Scope:
    using = {name: (left.unqualified(name), right.unqualified(name)) for name in _using(join)}
    return left.with_join(
        right, {name: _merged_column(*pair, join.side) for name, pair in using.items()}
    )


def _condition(join: exp.Join, left: Scope, right: Scope, joined: Scope) -> Expr | None:
    """Return the join condition of ON or USING, without the conjuncts that contain subqueries."""
    if using := _using(join):
        pairs = [(left.unqualified(name), right.unqualified(name)) for name in using]
        return Expr.parse(" AND ".join(f"({own.sql} = {other.sql})" for own, other in pairs))
    on = join.args.get("on")
    if on is not None and has_subquery(on):
        return _joined_by(
            [joined.resolve(part) for part in and_operands(on) if not has_subquery(part)]
        )
    return joined.resolve(on) if on else None


def _using(join: exp.Join) -> list[str]:
    return [column.name for column in join.args.get("using") or ()]


def _expansion(
    function: FunctionItem, alias: str, scope: Scope, on: Sequence[exp.Expression] | None
) -> Expansion:
    """Return the call of a function for each row; with `on`, like a LEFT JOIN by these conditions."""
    refs = [Ref(alias, name) for name in function.columns]
    inside = Scope(scope).with_columns(function.alias, function.columns, refs)
    condition = _joined_by([inside.resolve(part) for part in on]) if on is not None else None
    call = scope.resolve(function.call)
    return Expansion(alias, function.columns, call, on is not None, function.numbered, condition)


def _values_of(item: exp.Expression) -> exp.Values | None:
    if isinstance(item, exp.Values):
        return item
    # The parser reads VALUES as a table if it is the first item of a parenthesized join.
    return item.this if isinstance(item, exp.Table) and isinstance(item.this, exp.Values) else None


def _name_columns(
    item: exp.Expression, relation: Relation, scope: Scope, shown: int | None = None
) -> ScopedRows:
    """Add the first `shown` columns of a FROM item, or all, to the scope under the names of its
    alias.
    """
    refs = relation.columns[:shown]
    names = _column_names([ref.column for ref in refs], item)
    return ScopedRows(relation, scope.with_columns(item.alias_or_name, names, refs))


def _column_names(names: list[str], item: exp.Expression) -> list[str]:
    """Return the column names of a FROM item: those of its alias first."""
    alias = item.args.get("alias")
    given = [column.name for column in alias.columns] if alias else []
    return [*given, *names[len(given) :]]


_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "left", "FULL": "full"}


def _cannot_be_called_per_row(join: exp.Join) -> bool:
    """Return True if a join cannot be made by calling a function for each row: RIGHT, FULL, USING,
    a subquery in ON.
    """
    on = join.args.get("on")
    has_outer_subquery = join.side == "LEFT" and on is not None and has_subquery(on)
    return join.side in ("RIGHT", "FULL") or bool(join.args.get("using")) or has_outer_subquery


def _joined_by(conditions: list[Expr | None]) -> Expr | None:
    """Return the AND of the conditions that are not None; None if there are none."""
    parts = [condition for condition in conditions if condition is not None]
    return all_of(parts) if parts else None


def _merged_column(left: Expr, right: Expr, side: str) -> Expr:
    """Return the merged column of USING."""
    if side == "FULL":
        return Expr.parse(f"COALESCE({left.sql}, {right.sql})")
    return right if side == "RIGHT" else left
