"""Build GROUP BY and HAVING.

Keys and aggregates are the columns of the groups; the select list is computed from these. A subquery inside an
aggregate is joined to the rows before grouping, any other to the groups.
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import Expr, unwrapped
from millstream.algebra.relation import Relation
from millstream.compiler.clauses import clock
from millstream.compiler.clauses.clock_join import join_clock_to_groups
from millstream.compiler.clauses.conditions import filter_rows
from millstream.compiler.clauses.groups.grouping import Grouping
from millstream.compiler.clauses.groups.grouping_sets import replace_grouping_calls
from millstream.compiler.decorrelate.attach import Host
from millstream.compiler.decorrelate.bindings import Bindings
from millstream.compiler.decorrelate.clauses import one_row_per_binding
from millstream.compiler.decorrelate.find import has_subquery
from millstream.compiler.decorrelate.scope import Scope, refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries
from millstream.compiler.decorrelate.syntax import and_operands
from millstream.errors import Unsupported


def build_groups(
    select: exp.Select,
    wanted: list[exp.Expression],
    relation: Relation,
    scope: Scope,
    binding_refs: list[Expr],
    bindings: Bindings | None,
    subqueries: Subqueries,
) -> tuple[Relation, list[Expr]]:
    """Return the groups that satisfy HAVING, and the wanted expressions over them, the binding columns last.

    Binding columns are group keys too.
    """
    builder = subqueries.builder
    group, having = select.args.get("group"), select.args.get("having")
    if group and any(map(has_subquery, group.expressions)):
        raise Unsupported.construct(
            "GROUP BY a subquery", reason="Millstream does not maintain it yet.",
            way_round="Compute it in a subquery of FROM, and group by its column.",
        )  # fmt: skip
    before, written = relation.columns, group.expressions if group else ()
    relation, made = builder.sets.expanded(relation, [scope.resolve(key) for key in written])
    moved = dict(zip(before, relation.columns, strict=False))
    scope.rename(moved)
    binding_refs = [one.substitute({old: Expr(new.sql) for old, new in moved.items()}) for one in binding_refs]
    keys = [Expr.of(unwrapped(scope.resolve(key).tree)) for key in written]
    grouping = Grouping(tuple(dict.fromkeys([*keys, *binding_refs])), builder.fresh("g"), builder.aggregates)
    grouping.made = {key.sql: column for key, column in zip(keys, made, strict=True)}
    # Subqueries inside aggregates are joined to the rows that are grouped, all others to the groups.
    rows, host = Host(relation, scope), Host(None, scope, grouping.over, ungrouped_rows=relation)
    grouping.known = host.joined_aliases
    if clock.COLUMN in scope.columns:
        host.joined_aliases.add(scope.columns[clock.COLUMN].alias)
    present = {Expr.of(unwrapped(key)).sql for key in (group.expressions if group else ())}
    asking = [*(replace_grouping_calls(one, present) for one in wanted), *(and_operands(having.this) if having else ())]
    every = list[Expr]()
    for node in asking:
        inside, found = subqueries.in_calls(node, rows)
        every.append(grouping.over(subqueries.expression(inside, host).substitute(found)))
    every = join_clock_to_groups(scope, host, every, builder.fresh)
    exprs, asked = every[: len(wanted)], every[len(wanted) :]
    over = [grouping.over(one) for one in binding_refs]
    groups = refuse_unresolved(lambda: grouping.relation(rows.apply_joins(relation)))
    # Without GROUP BY there is one row per binding, even over no rows.
    aggregate = one_row_per_binding(groups, bindings, builder.fresh) if bindings and not group else groups
    return filter_rows(refuse_unresolved(lambda: host.apply_joins(aggregate)), asked), [*exprs, *over]
