"""Scalar subqueries: subqueries that stand for one value.

    (SELECT max(y) FROM t WHERE t.k = x)    t grouped by t.k, left-joined by it
    (SELECT y FROM t WHERE t.id = x)        at most one row, left-joined
    (SELECT y FROM t WHERE t.k = x)         the first row and the number of rows: PostgreSQL raises its own error for
                                            a row of the result that reads a subquery of several rows

A LATERAL subquery in FROM that always has one row adds columns to the rows so far in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, Ref, conjuncts, equated, unwrapped
from millstream.algebra.relation import (
    Aggregate,
    Filter,
    Join,
    Named,
    Project,
    Relation,
    Scan,
    Window,
)
from millstream.compiler.clauses.clock import COLUMN, mentions_clock
from millstream.compiler.clauses.clock_join import join_clock_to_groups
from millstream.compiler.clauses.groups.grouping import Grouping
from millstream.compiler.decorrelate.attach import Host, KeyedSubquery, SubqueryJoiner, conjunction
from millstream.compiler.decorrelate.bindings import Correlated
from millstream.compiler.decorrelate.clauses import measure_or_default
from millstream.compiler.decorrelate.correlation import (
    correlate_with,
    correlation_equalities,
    outer_columns,
)
from millstream.compiler.decorrelate.find import has_plain_correlation, has_subquery
from millstream.compiler.decorrelate.restrict_groups import restrict_groups
from millstream.compiler.decorrelate.scope import Scope, refuse_unresolved
from millstream.compiler.decorrelate.syntax import is_bare_select, select_expressions


def scalar_value(joiner: SubqueryJoiner, query: exp.Expression, host: Host) -> Expr:
    """Join a scalar subquery to the host; return its value, NULL if it has no row."""
    columns = one_row_columns(joiner, query, host)
    if columns is not None:
        return columns[0]
    keyed = joiner.decorrelate_by_keys(query, host, exact=True)
    key_columns = [Named(f"t{number}", key) for number, key in enumerate(keyed.inner_keys)]
    outputs = (Named("value", keyed.outputs[0]), *key_columns)
    whole = Project(keyed.relation, outputs, joiner.builder.fresh("scalar"))
    if not (
        _is_plain_aggregate(joiner, query) or _is_limited_to_one(query) or _matches_one_row(keyed)
    ):
        return _value_of_several_rows(joiner, whole, keyed, host)
    host.join(whole, keyed.join_condition(whole.alias, "t"), "left")
    return Expr.ref(whole.alias, "value")


def one_row_columns(joiner: SubqueryJoiner, query: exp.Expression, host: Host) -> list[Expr] | None:
    """Join a subquery that has exactly one row for each host row; return its columns, None if it is
    not such a one.

    Those are a select list without FROM, and aggregates without GROUP BY that are correlated by
    equalities.
    """
    if not isinstance(query, exp.Select) or _returns_sets(joiner, query):
        return None
    items = select_expressions(query)
    if is_bare_select(query, joiner.builder.aggregates) and not any(map(mentions_clock, items)):
        return [joiner.expression(item, host) for item in items]
    return _join_groups(joiner, query, host) if _is_plain_aggregate(joiner, query) else None


def _returns_sets(joiner: SubqueryJoiner, select: exp.Select) -> bool:
    return any(map(joiner.builder.sets.inside, select_expressions(select)))


def _is_plain_aggregate(joiner: SubqueryJoiner, query: exp.Expression) -> bool:
    """Return True for aggregates without GROUP BY: they have one row, even over no rows."""
    if not isinstance(query, exp.Select) or _returns_sets(joiner, query):
        return False
    return joiner.builder.aggregates.group(query) and not query.args.get("group")


def _join_groups(joiner: SubqueryJoiner, query: exp.Select, host: Host) -> list[Expr] | None:
    """Join aggregates that are correlated by equalities only, grouped by the inner sides; return
    their columns.

    Return None if the query is correlated in another way or has clauses that act on its one row.
    """
    clauses = ("having", "limit", "offset", "with_", "distinct")
    if any(query.args.get(clause) for clause in clauses) or not has_plain_correlation(
        query, host.scope
    ):
        return None
    if any(
        has_subquery(item) or outer_columns(item, host.scope) for item in select_expressions(query)
    ):
        return None
    if query.args.get("from_") is None:
        return None
    filtered = joiner.builder.from_where(query, host.scope, joiner.ctes)
    pairs = correlation_equalities(filtered.correlations, filtered.rows)
    if pairs is None:
        return None
    keyed = KeyedSubquery(Correlated(filtered.rows, (), filtered.correlations), tuple(pairs))
    return _group_and_join(joiner, query, filtered.scope, keyed, host)


def _group_and_join(
    joiner: SubqueryJoiner, query: exp.Select, scope: Scope, keyed: KeyedSubquery, host: Host
) -> list[Expr]:
    """Group the rows of a keyed subquery by its inner keys and join the groups to the host."""
    builder = joiner.builder
    correlations = keyed.correlated.correlations
    grouping = Grouping(
        tuple(dict.fromkeys(keyed.inner_keys)), builder.fresh("scalar"), builder.aggregates
    )
    if COLUMN in scope.columns:
        grouping.joined_aliases.add(scope.columns[COLUMN].alias)
    columns = [grouping.over(scope.resolve(item)) for item in select_expressions(query)]
    rows = keyed.relation
    if host.relation is not None:
        rows = restrict_groups(rows, correlations, host.relation, builder.fresh)
    groups = refuse_unresolved(lambda: grouping.relation(rows))
    conditions = list[Expr]()
    for correlation, (inner, outer) in zip(correlations, keyed.pairs, strict=True):
        key = Expr.ref(groups.alias, grouping.keys[inner.sql])
        conditions.append(correlate_with(correlation, outer, key))
    host.join(groups, conjunction(conditions), keyed.join_kind)
    defaults = _defaults(groups) if keyed.pairs else {}
    return join_clock_to_groups(
        scope, host, [column.substitute(defaults) for column in columns], builder.fresh
    )


def _defaults(groups: Aggregate) -> dict[Ref, Expr]:
    """Return a replacement for each measure that is not NULL over no rows: `count` is 0 where no
    group matches.
    """
    defaults = dict[Ref, Expr]()
    for measure in groups.measures:
        value = measure_or_default(measure, groups.alias)
        if value.as_ref is None:
            defaults[Ref(groups.alias, measure.name)] = value
    return defaults


def _value_of_several_rows(
    joiner: SubqueryJoiner, rows: Project, keyed: KeyedSubquery, host: Host
) -> Expr:
    """Join the first row and the number of rows; return a subquery with that many rows.

    PostgreSQL evaluates it for rows that reach the result, and raises "more than one row returned"
    if it has several.
    """
    keys = tuple(Expr(ref.sql) for ref in rows.columns[1:])
    partition_by = ", ".join(key.sql for key in keys)
    over = f"(PARTITION BY {partition_by})" if keys else "()"
    number = Named("w0", Expr.parse(f"row_number() OVER {over}"))
    count = Named("w1", Expr.parse(f"count(*) OVER {over}"))
    window = Window(rows, keys, (number, count), joiner.builder.fresh("counted"))
    first = Filter(window, Expr.parse(f"{Ref(window.alias, 'w0').sql} = 1"))
    names = ["value", *(f"t{number}" for number in range(len(keys)))]
    outputs = [Named(name, Expr(ref.sql)) for name, ref in zip(names, window.columns, strict=False)]
    outputs.append(Named("n", Expr.ref(window.alias, "w1")))
    alias = joiner.builder.fresh("scalar")
    host.join(Project(first, tuple(outputs), alias), keyed.join_condition(alias, "t"), "left")
    value = Ref(alias, "value").sql
    row_count = Ref(alias, "n").sql
    return Expr.parse(f"(SELECT {value} FROM generate_series(CAST(1 AS BIGINT), {row_count}))")


def _is_limited_to_one(query: exp.Expression) -> bool:
    """Return True for LIMIT 1 and FETCH FIRST ROW, without WITH TIES."""
    limit = query.args.get("limit")
    if limit is None:
        return False
    if isinstance(limit, exp.Fetch) and "TIES" in printed(limit):
        return False
    count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    return count is None or (isinstance(count, exp.Literal) and count.name == "1")


def _matches_one_row(keyed: KeyedSubquery) -> bool:
    """Return True if at most one row matches: its conditions fix a unique key of the table, or it
    has only one row.
    """
    relation = keyed.relation
    conditions = list(keyed.correlated.correlations)
    while isinstance(relation, Filter):
        conditions += conjuncts(relation.predicate)
        relation = relation.input
    if isinstance(relation, Project):
        return _is_single_row(relation.input)
    if not isinstance(relation, Scan):
        return False
    if relation.table.single or not relation.table.key:
        return relation.table.single
    return set(relation.table.key) <= _equated_columns(relation, conditions)


def _equated_columns(scan: Scan, conditions: Iterable[Expr]) -> set[str]:
    """Return the columns of a table that a condition equates to an expression without columns of
    the table.
    """
    columns = set[str]()
    for condition in conditions:
        if not isinstance(unwrapped(condition.tree), exp.EQ):
            continue
        own = [side for side in equated(condition) or () if scan.alias in side.aliases]
        ref = own[0].as_ref if len(own) == 1 else None
        if ref is not None:
            columns.add(ref.column)
    return columns


def _is_single_row(relation: Relation) -> bool:
    """Return True if a relation never has more than one row."""
    if isinstance(relation, Filter | Project):
        return _is_single_row(relation.input)
    if isinstance(relation, Aggregate):
        return not relation.keys
    if isinstance(relation, Join):
        return (
            relation.kind == "inner"
            and _is_single_row(relation.left)
            and _is_single_row(relation.right)
        )
    return isinstance(relation, Scan) and relation.table.single
