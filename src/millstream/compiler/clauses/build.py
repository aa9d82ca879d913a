"""Turn PostgreSQL's canonical text of a query into a Relation.

The server has resolved all names, so only the structure remains to be built:

    FROM                          scans and joins                            `from_clause.py`
    WHERE, HAVING                 a filter                                   `conditions.py`
    GROUP BY                      an aggregate for each grouping set         `groups/group_by.py`, `grouping_sets.py`
    the select list               a projection                               `select_list.py`
    DISTINCT, UNION, EXCEPT       aggregates                                 `set_operations.py`
    LIMIT, DISTINCT ON            the first rows                             `limit.py`
    subqueries in expressions     joins                                      `../decorrelate`

Views and CTEs are built in place, as often as they are used. Every alias is made unique.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Expr
from millstream.algebra.query_part import planning
from millstream.algebra.relation import Named, Project, Relation, Scan, UnionAll
from millstream.algebra.table import Table
from millstream.algebra.types import PgType
from millstream.compiler.clauses import clock
from millstream.compiler.clauses.array_subquery import rewrite_array_subqueries
from millstream.compiler.clauses.clock_join import join_clock_to_from
from millstream.compiler.clauses.conditions import filter_rows, filter_with_subqueries
from millstream.compiler.clauses.from_clause import FromClause
from millstream.compiler.clauses.groups.group_by import build_groups
from millstream.compiler.clauses.groups.grouping import Aggregates, function_name
from millstream.compiler.clauses.groups.grouping_sets import (
    Set,
    all_keys,
    grouping_sets_of,
    select_for_set,
    select_of_keys,
)
from millstream.compiler.clauses.limit import apply_limit, limit_text
from millstream.compiler.clauses.recursive import search_cycle
from millstream.compiler.clauses.recursive.recursion import build_recursion, reads_itself
from millstream.compiler.clauses.select_functions import SetReturningCalls
from millstream.compiler.clauses.select_list import (
    build_select_list,
    listed_expressions,
    select_list_of,
    unique_names,
)
from millstream.compiler.clauses.set_operations import (
    INT4,
    combine_rows,
    flatten_chain,
    types_of_each,
)
from millstream.compiler.clauses.steps import split_steps
from millstream.compiler.clauses.subquery_order import SubqueryOrder
from millstream.compiler.clauses.values import values_as_selects, values_table
from millstream.compiler.clauses.windows import build_windows, inline_named_windows
from millstream.compiler.clauses.with_queries import Cte, Ctes, is_materialized
from millstream.compiler.decorrelate.attach import FilteredRows, Host
from millstream.compiler.decorrelate.bindings import Bindings, BoundRows, Correlated, output_refs
from millstream.compiler.decorrelate.clauses import OutputColumns
from millstream.compiler.decorrelate.column_types import outer_column_types, standalone_text
from millstream.compiler.decorrelate.correlation import (
    correlation_equalities,
    is_correlated_by_equalities,
    outer_columns,
    refuse_outer_aggregates,
)
from millstream.compiler.decorrelate.find import has_subquery
from millstream.compiler.decorrelate.inline_with import inline_correlated_with
from millstream.compiler.decorrelate.scope import Scope, refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries
from millstream.compiler.decorrelate.syntax import and_operands, partition_windows
from millstream.errors import Unsupported


class CatalogLookup(Protocol):
    """The questions that the builder asks the catalog."""

    def table(self, schema: str, name: str) -> Table | str:
        """Return a table, or the canonical text of a view."""

    def types(self, select: str, node: object = None) -> tuple[PgType, ...]:
        """Return the types of a query's output; `node` is the syntax node that a refusal is about."""

    def aggregates(self) -> frozenset[str]:
        """Return the names of the aggregates that the query and the views read so far call."""

    def sets(self) -> Mapping[str, bool]:
        """Return the names of the set-returning functions, each with True if it returns rows of
        several columns.
        """


def build_relation(tree: exp.Expression, names: CatalogLookup) -> Relation:
    """Return the Relation of a query, from the syntax tree of its canonical text."""
    return _Builder(names).tree(tree)


class _Builder:
    def __init__(self, names: CatalogLookup) -> None:
        self.names = names
        self.aggregates = Aggregates(names.aggregates)
        self.aliases: set[str] = set()
        self.sets = SetReturningCalls(names.sets, self.fresh)
        self.depth = 0
        """The number of recursive queries that enclose, in the text, the query being built."""

    def table(self, schema: str, name: str) -> Table | str:
        return self.names.table(schema, name)

    def types(self, select: str, node: object = None) -> tuple[PgType, ...]:
        return self.names.types(select, node)

    def fresh(self, wanted: str) -> str:
        """Return an unused alias."""
        name, number = wanted, 1
        while name in self.aliases:
            number += 1
            name = f"{wanted}_{number}"
        self.aliases.add(name)
        return name

    # -- queries ---------------------------------------------------------------------------

    def tree(self, tree: exp.Expression) -> Relation:
        """Build the relation of a canonical text: the query itself, or a view in it."""
        return self.query(
            SubqueryOrder(self.aggregates, self._view).carry(self._simplified(tree)), {}
        )

    def _simplified(self, tree: exp.Expression) -> exp.Expression:
        """Rewrite clock calls, SEARCH, CYCLE, ARRAY(subquery) and clauses in steps by simpler
        constructs.
        """
        tree = clock.replace_clock_calls(search_cycle.rewrite_search_and_cycle(tree))
        tree = rewrite_array_subqueries(tree, self.aggregates, self.sets.inside)
        return split_steps(tree, self.aggregates)

    def _view(self, schema: str, name: str) -> exp.Expression | None:
        found = self.names.table(schema, name)
        return self._simplified(parsed(found)) if isinstance(found, str) else None

    def query(
        self,
        query: exp.Expression,
        ctes: Ctes,
        outer: Scope | None = None,
        bindings: Bindings | None = None,
    ) -> Relation:
        """Build the relation of a query; with `bindings`, of a subquery whose last columns are the
        binding columns.
        """
        with planning(lambda: printed(query)):
            return self._query(query, ctes, outer, bindings)

    def _query(
        self, query: exp.Expression, ctes: Ctes, outer: Scope | None, bindings: Bindings | None
    ) -> Relation:
        if isinstance(query, exp.Subquery):
            return self.query(query.this, ctes, outer, bindings)
        query = inline_correlated_with(query, outer) if bindings else query
        ctes = self.with_queries(query, ctes)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, ctes, outer, bindings)
        if isinstance(query, exp.Values) and bindings is not None:
            return self.query(values_as_selects(query), ctes, outer, bindings)
        if isinstance(query, exp.Values):
            return Scan(values_table(query, self.types), self.fresh("values"))
        assert isinstance(query, exp.Select), f"unexpected {type(query).__name__}"
        return self._select(query, ctes, outer, bindings)

    def decorrelate(
        self, query: exp.Expression, ctes: Ctes, scope: Scope, outer_rows: Relation
    ) -> Correlated:
        """Decorrelate a subquery of any kind."""
        query = inline_correlated_with(
            query.this if isinstance(query, exp.Subquery) else query, scope
        )
        columns = outer_columns(query, scope)
        if not columns:
            relation = self.query(query, ctes)
            return Correlated(relation, tuple(Expr(ref.sql) for ref in relation.columns), ())
        refuse_outer_aggregates(columns, query, scope, self.aggregates)
        if isinstance(query, exp.Select) and is_correlated_by_equalities(
            query, scope, self.aggregates
        ):
            return self._by_inner_keys(query, self.with_queries(query, ctes), scope)
        bindings = Bindings(
            tuple(columns),
            outer_rows,
            outer_column_types(columns.values(), ctes, scope, self.types),
        )
        relation = self.query(query, ctes, scope, bindings)
        outputs, binding_refs = output_refs(relation, len(columns))
        correlations = bindings.correlations(Expr(ref.sql) for ref in binding_refs)
        return Correlated(relation, tuple(Expr(ref.sql) for ref in outputs), correlations)

    def _by_inner_keys(self, select: exp.Select, ctes: Ctes, outer: Scope) -> Correlated:
        """Decorrelate a SELECT that is correlated by equalities only: their inner sides replace the
        bindings.
        """
        select = inline_named_windows(select)
        filtered = self.from_where(select, outer, ctes)
        pairs = correlation_equalities(filtered.correlations, filtered.rows)
        assert pairs is not None, f"not equalities: {filtered.correlations}"
        source = BoundRows(
            filtered.rows, filtered.scope.without_outer_refs(), tuple(own for own, _ in pairs)
        )
        whole = self._select_rows(select, source, ctes)
        outputs, binding_refs = output_refs(whole, len(pairs))
        correlations = tuple(
            Expr.parse(f"({value.sql}) = {ref.sql}").at_position(min(own.position, value.position))
            for (own, value), ref in zip(pairs, binding_refs, strict=True)
        )
        return Correlated(whole, tuple(Expr(ref.sql) for ref in outputs), correlations)

    def with_queries(self, query: exp.Expression, outer: Ctes) -> Ctes:
        """Return the WITH queries that a query may name."""
        known = dict(outer)
        clause = query.args.get("with_") or exp.With(expressions=[])
        for cte in clause.expressions:
            recursive = bool(clause.args.get("recursive")) and reads_itself(cte)
            build = (
                self._recursive_cte(cte, dict(known))
                if recursive
                else self._plain_cte(cte, dict(known), whole=is_materialized(cte, query))
            )
            known[cte.alias] = Cte(cte, build, recursive)
        return known

    def _recursive_cte(self, cte: exp.CTE, ctes: Ctes) -> Callable[[], Relation]:
        depth = self.depth + 1

        def built() -> Relation:
            # The depth of the place where it is written, not where it is used: then two uses are
            # one block.
            self.depth, around = depth, self.depth
            try:
                return build_recursion(cte, ctes, depth, self)
            finally:
                self.depth = around

        return built

    def _plain_cte(self, cte: exp.Expression, ctes: Ctes, *, whole: bool) -> Callable[[], Relation]:
        names = [column.name for column in cte.args["alias"].columns]

        def built() -> Relation:
            relation = self._rename_columns(self.query(cte.this, ctes), names)
            # The names of its rows are those of a projection, but for tables and set operations.
            return (
                replace(relation, materialized=True)
                if whole and isinstance(relation, Project)
                else relation
            )

        return built

    def _rename_columns(self, relation: Relation, names: list[str]) -> Relation:
        """Return a relation with other names for its first columns."""
        if not names:
            return relation
        own = [ref.column for ref in relation.columns]
        outputs = zip([*names, *own[len(names) :]], relation.columns, strict=True)
        return Project(
            relation, tuple(Named(name, Expr(ref.sql)) for name, ref in outputs), self.fresh("q")
        )

    def _select(
        self, select: exp.Select, ctes: Ctes, outer: Scope | None, bindings: Bindings | None = None
    ) -> Relation:
        if sets := grouping_sets_of(select.args["group"]) if select.args.get("group") else None:
            return self._grouping_sets(select, sets, ctes, outer, bindings)
        select = inline_named_windows(select)
        filtered = self.from_where(select, outer, ctes, bindings)
        refs = (
            tuple(filtered.scope.bindings[value] for value in bindings.values) if bindings else ()
        )
        return self._select_rows(
            select, BoundRows(filtered.rows, filtered.scope, refs, bindings), ctes
        )

    def _select_rows(self, select: exp.Select, source: BoundRows, ctes: Ctes) -> Relation:
        """Build all clauses of a SELECT after WHERE; the binding columns come last."""
        subqueries = Subqueries(self, ctes)
        wanted = listed_expressions(select)
        scope = source.scope
        if self.aggregates.group(select):
            relation, exprs = build_groups(select, wanted, source, subqueries)
        else:
            host = Host(source.rows, scope)
            exprs = [subqueries.expression(node, host) for node in wanted] + list(
                source.binding_refs
            )
            relation = refuse_unresolved(lambda: host.apply_joins(source.rows))
        if scope.outer_refs.found:
            raise Unsupported.construct(
                "a correlated subquery in this place",
                reason="Millstream does not maintain it yet.",
                way_round="Write it as a join, or move the correlation to the WHERE clause of the subquery itself.",
            )
        exprs, binding_refs = exprs[: len(wanted)], exprs[len(wanted) :]
        if binding_refs:
            exprs = [partition_windows(expr, binding_refs) for expr in exprs]
        relation, exprs = build_windows(relation, [*exprs, *binding_refs], self.fresh)
        relation, exprs = self.sets.expand(relation, exprs)

        def types() -> tuple[PgType, ...]:
            return self.types(standalone_text(select, ctes, scope.outer, self.types))

        return build_select_list(
            select, relation, select_list_of(select, exprs, len(binding_refs), types), self.fresh
        )

    def _grouping_sets(
        self,
        select: exp.Select,
        sets: list[Set],
        ctes: Ctes,
        outer: Scope | None,
        bindings: Bindings | None,
    ) -> Relation:
        """Build one SELECT for each grouping set, and their UNION ALL."""
        in_steps = select.args.get("distinct") or limit_text(select)
        assert not in_steps, "GROUPING SETS with DISTINCT or LIMIT are two steps"
        names = unique_names([item.alias_or_name for item in select.expressions])
        types = self._types_by_position(standalone_text(select, ctes, outer, self.types), names)
        keys_alone = select_of_keys(select, sets)
        types_of_keys = self.types(standalone_text(keys_alone, ctes, outer, self.types))
        key_types = dict(zip(all_keys(sets), types_of_keys, strict=True))
        selects = (select_for_set(select, keys, key_types, self.aggregates) for keys in sets)
        parts = [self._select(part, ctes, outer, bindings) for part in selects]
        binding_names, binding_types = (
            (bindings.names, bindings.key_types) if bindings else ((), ())
        )
        return UnionAll(
            tuple(parts), (*names, *binding_names), (*types, *binding_types), self.fresh("u"),
            grouping_sets=True,
        )  # fmt: skip

    def from_where(
        self, select: exp.Select, outer: Scope | None, ctes: Ctes, bindings: Bindings | None = None
    ) -> FilteredRows:
        """Build FROM and WHERE."""
        where = select.args.get("where")
        parts = and_operands(where.this) if where else []
        with_subqueries = [part for part in parts if has_subquery(part)]
        plain = [part for part in parts if not has_subquery(part)]
        # Filter before a LATERAL, so that it is computed for fewer rows; a RIGHT or FULL JOIN above
        # forbids that.
        early = [] if _brings_rows(select) else plain
        scope = Scope(outer, select).with_early_conditions(early)
        rows = FromClause(self, ctes, bindings).rows(select, scope)
        rows = join_clock_to_from(select, rows, self.aggregates, self.fresh)
        remaining = plain if _brings_rows(select) else rows.scope.early_conditions
        conditions = [rows.scope.resolve(part) for part in remaining]
        own = set(rows.rows.columns)
        filtered = rows.over(
            filter_rows(rows.rows, [condition for condition in conditions if condition.refs <= own])
        )
        # Subqueries come after plain conditions, which leave fewer rows for them.
        filtered = filter_with_subqueries(filtered, with_subqueries, Subqueries(self, ctes))
        correlations = tuple(condition for condition in conditions if not condition.refs <= own)
        return FilteredRows(filtered.rows, filtered.scope, correlations)

    def _set_operation(
        self, query: exp.SetOperation, ctes: Ctes, outer: Scope | None, bindings: Bindings | None
    ) -> Relation:
        operations = flatten_chain(query)
        written = [operations[0].this, *(operation.expression for operation in operations)]
        parts = [self.query(part, ctes, outer, bindings) for part in written]
        binding_count = len(bindings.values) if bindings else 0
        names = tuple(ref.column for ref in output_refs(parts[0], binding_count)[0])
        # A query without columns has one column of ours.
        bare = not next(query.find_all(exp.Select)).expressions

        def types_of_query(part: exp.Expression) -> tuple[PgType, ...]:
            if bare:
                return (INT4,)
            text = standalone_text(part, ctes, outer, self.types)
            return self._types_by_position(text, names, _anonymous_row(part))

        binding_names, binding_types = (
            (bindings.names, bindings.key_types) if bindings else ((), ())
        )
        types_of_operations = types_of_each(operations, types_of_query)
        all_types = [(*types, *binding_types) for types in types_of_operations]
        relation = combine_rows(query, parts, (*names, *binding_names), all_types, self.fresh)
        output = OutputColumns(names, binding_count, lambda: types_of_operations[-1])
        return apply_limit(
            query, relation, _sort_keys_by_position(query, relation), output, self.fresh
        )

    def _types_by_position(
        self, text: str, names: Sequence[str], node: object = None
    ) -> tuple[PgType, ...]:
        """Return the types of a query's columns, named c0, c1, ...: it may give one name to two
        columns.
        """
        listed = ", ".join(f"c{number}" for number in range(len(names)))
        return self.types(f"SELECT * FROM ({text}) AS u ({listed})", node)


def _anonymous_row(query: exp.Expression) -> exp.Expr | None:
    """Return the first column of a query that is an anonymous row, which no column can store."""
    items = query.selects if isinstance(query, exp.Query) else []
    return next((item for item in items if function_name(item.unalias()) == "ROW"), None)


def _sort_keys_by_position(query: exp.SetOperation, relation: Relation) -> list[Expr]:
    """Return the columns that ORDER BY names by position; none without LIMIT, which alone needs an
    order.
    """
    order = query.args.get("order")
    if order is None or not limit_text(query):
        return []
    positions = [int(term.this.name) for term in order.expressions]
    return [Expr(relation.columns[position - 1].sql) for position in positions]


def _brings_rows(select: exp.Select) -> bool:
    """Return True if a RIGHT or FULL JOIN in FROM may add rows that WHERE has not seen."""
    return any(join.side in ("RIGHT", "FULL") for join in select.find_all(exp.Join))
