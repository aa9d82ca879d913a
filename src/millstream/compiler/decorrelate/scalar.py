"""A subquery that stands for a value.

    (SELECT max(y) FROM t WHERE t.k = x)    the groups of t by t.k, joined by it: a left join
    (SELECT y FROM t WHERE t.id = x)        its one row, joined
    (SELECT y FROM t WHERE t.k = x)         its first row and how many there are: PostgreSQL raises its error

The same subqueries in FROM, LATERAL, are more columns of the rows so far.
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, Ref, conjuncts, equated, unwrapped
from millstream.algebra.relation import Aggregate, Filter, Join, Named, Project, Relation, Scan, Window
from millstream.compiler.clauses.clock import COLUMN, mentions_clock
from millstream.compiler.clauses.clock_join import join_clock_to_groups
from millstream.compiler.clauses.groups.grouping import Grouping
from millstream.compiler.decorrelate.attach import Host, KeyedSubquery, SubqueryJoiner, conjunction
from millstream.compiler.decorrelate.bindings import (
    Correlated,
    correlate_with,
    correlation_equalities,
    is_bare_select,
    outer_columns,
    select_expressions,
)
from millstream.compiler.decorrelate.clauses import measure_or_default
from millstream.compiler.decorrelate.find import has_plain_correlation, has_subquery
from millstream.compiler.decorrelate.restrict_groups import restrict_groups
from millstream.compiler.decorrelate.scope import Scope, refuse_unresolved


def scalar_value(joining: SubqueryJoiner, query: exp.Expression, host: Host) -> Expr:
    """The value of a subquery in an expression; NULL where it has no row."""
    values = one_row_columns(joining, query, host)
    if values is not None:
        return values[0]
    keyed = joining.keyed(query, host, exact=True)
    names = [f"t{n}" for n in range(len(keyed.own))]
    outputs = [Named("value", keyed.outputs[0]), *map(Named, names, keyed.own)]
    whole = Project(keyed.relation, tuple(outputs), joining.builder.fresh("scalar"))
    if not (_aggregates(joining, query) or _limited_to_one(query) or _one_row(keyed)):
        return _of_several(joining, whole, keyed, host)
    host.join(whole, keyed.condition(whole.alias, "t"), "left")
    return Expr.ref(whole.alias, "value")


def one_row_columns(joining: SubqueryJoiner, query: exp.Expression, host: Host) -> list[Expr] | None:
    """The columns of a subquery that has one row for each of the host's, whatever there is; None of any other."""
    if not isinstance(query, exp.Select) or any(map(joining.builder.sets.inside, select_expressions(query))):
        return None
    if is_bare_select(query, joining.builder.aggregates) and not any(map(mentions_clock, select_expressions(query))):
        return [joining.expression(item, host) for item in select_expressions(query)]
    return _group_join(joining, query, host) if _aggregates(joining, query) else None


def _aggregates(joining: SubqueryJoiner, query: exp.Expression) -> bool:
    """Is it an aggregate without GROUP BY, which has one row whatever there is to aggregate?"""
    if not isinstance(query, exp.Select) or any(map(joining.builder.sets.inside, select_expressions(query))):
        return False
    return joining.builder.aggregates.group(query) and not query.args.get("group")


def _group_join(joining: SubqueryJoiner, query: exp.Select, host: Host) -> list[Expr] | None:
    """Aggregates over rows that are tied by equalities alone: groups by their ends, joined. None for others."""
    words = ("having", "limit", "offset", "with_", "distinct")
    if any(query.args.get(word) for word in words) or not has_plain_correlation(query, host.scope):
        return None
    if any(has_subquery(item) or outer_columns(item, host.scope) for item in select_expressions(query)):
        return None
    if query.args.get("from_") is None:
        return None
    scope = Scope(host.scope, query)
    relation, outside = joining.builder.from_where(query, scope, joining.ctes)
    pairs = correlation_equalities(outside, relation)
    if pairs is None:
        return None
    return _joined_groups(
        joining, query, scope, KeyedSubquery(Correlated(relation, (), tuple(outside)), tuple(pairs)), host
    )


def _joined_groups(
    joining: SubqueryJoiner, query: exp.Select, scope: Scope, keyed: KeyedSubquery, host: Host
) -> list[Expr]:
    keys = tuple(dict.fromkeys(keyed.own))
    grouping = Grouping(keys, joining.builder.fresh("scalar"), joining.builder.aggregates)
    if COLUMN in scope.columns:
        grouping.known.add(scope.columns[COLUMN].alias)
    values = [grouping.over(scope.resolve(item)) for item in select_expressions(query)]
    rows = keyed.relation
    if host.relation is not None:
        rows = restrict_groups(rows, keyed.correlated.correlations, host.relation, joining.builder.fresh)
    groups = refuse_unresolved(lambda: grouping.relation(rows))
    # Of nothing, count is 0 and all else NULL: where no group is met, the columns are NULL already.
    found = {Ref(groups.alias, m.name): measure_or_default(m, groups.alias) for m in groups.measures} if keys else {}
    changed = {ref: one for ref, one in found.items() if one.as_ref is None}
    correlations = zip(keyed.correlated.correlations, keyed.pairs, strict=True)
    same = [
        correlate_with(correlation, value, Expr.ref(groups.alias, grouping.keys[own.sql]))
        for correlation, (own, value) in correlations
    ]
    host.join(groups, conjunction(same), keyed.kind)
    return join_clock_to_groups(scope, host, [value.substitute(changed) for value in values], joining.builder.fresh)


def _of_several(joining: SubqueryJoiner, rows: Project, keyed: KeyedSubquery, host: Host) -> Expr:
    """The first row, and how many there are: where a row of the result asks for it, PostgreSQL raises its error."""
    by = ", ".join(ref.sql for ref in rows.columns[1:])
    over = f"(PARTITION BY {by})" if by else "()"
    calls = [Named("w0", Expr.parse(f"row_number() OVER {over}")), Named("w1", Expr.parse(f"count(*) OVER {over}"))]
    keys = tuple(Expr(ref.sql) for ref in rows.columns[1:])
    window = Window(rows, keys, tuple(calls), joining.builder.fresh("counted"))
    first = Filter(window, Expr.parse(f"{Ref(window.alias, 'w0').sql} = 1"))
    names = ["value", *(f"t{n}" for n in range(len(keyed.own)))]
    outputs = [Named(name, Expr(ref.sql)) for name, ref in zip(names, window.columns, strict=False)]
    alias = joining.builder.fresh("scalar")
    host.join(Project(first, (*outputs, Named("n", Expr.ref(window.alias, "w1"))), alias),
              keyed.condition(alias, "t"), "left")  # fmt: skip
    value, count = Ref(alias, "value").sql, Ref(alias, "n").sql
    return Expr.parse(f"(SELECT {value} FROM generate_series(CAST(1 AS BIGINT), {count}))")


def _limited_to_one(query: exp.Expression) -> bool:
    limit = query.args.get("limit")
    count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression if limit else None
    correlations = isinstance(limit, exp.Fetch) and "TIES" in printed(limit)
    return (
        limit is not None
        and not correlations
        and (count is None or (isinstance(count, exp.Literal) and count.name == "1"))
    )


def _one_row(keyed: KeyedSubquery) -> bool:
    """Is at most one row met? Where the ties, or what is asked of the table itself, name a unique key of it."""
    relation, conditions = keyed.relation, list(keyed.correlated.correlations)
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
        if isinstance(unwrapped(condition.tree), exp.EQ):
            own = [side for side in equated(condition) or () if relation.alias in side.aliases]
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
