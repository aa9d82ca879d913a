"""Build GROUP BY and HAVING.

Keys and aggregates are the columns of the groups; the select list is computed from these. A
subquery inside an aggregate is joined to the rows before grouping, any other to the groups.
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
from millstream.compiler.decorrelate.attach import Host, SubqueryBuilder
from millstream.compiler.decorrelate.bindings import BoundRows
from millstream.compiler.decorrelate.clauses import one_row_per_binding
from millstream.compiler.decorrelate.find import has_subquery
from millstream.compiler.decorrelate.scope import refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries
from millstream.compiler.decorrelate.syntax import and_operands
from millstream.errors import Unsupported


def build_groups(
    select: exp.Select, wanted: list[exp.Expression], source: BoundRows, subqueries: Subqueries
) -> tuple[Relation, list[Expr]]:
    """Return the groups that satisfy HAVING, and the wanted expressions over them, the binding
    columns last.

    Binding columns are group keys too.
    """
    written = _written_keys(select)
    builder = subqueries.builder
    source, computed = _expand_sets(written, source, builder)
    keys = [Expr.of(unwrapped(source.scope.resolve(key).tree)) for key in written]
    grouping = Grouping(
        tuple(dict.fromkeys([*keys, *source.binding_refs])), builder.fresh("g"), builder.aggregates
    )
    grouping.computed = {key.sql: column for key, column in zip(keys, computed, strict=True)}
    over_groups = _OverGroups(grouping, source, subqueries)
    having = select.args.get("having")
    present = {Expr.of(unwrapped(key)).sql for key in written}
    asked = [replace_grouping_calls(node, present) for node in wanted]
    exprs = [
        over_groups.expression(node)
        for node in (*asked, *(and_operands(having.this) if having else ()))
    ]
    exprs = join_clock_to_groups(source.scope, over_groups.host, exprs, builder.fresh)
    binding_refs = [grouping.over(ref) for ref in source.binding_refs]
    groups = over_groups.relation(one_row=not select.args.get("group"))
    return filter_rows(groups, exprs[len(wanted) :]), [*exprs[: len(wanted)], *binding_refs]


def _written_keys(select: exp.Select) -> list[exp.Expression]:
    """Return the keys of GROUP BY; raise Unsupported if one contains a subquery."""
    group = select.args.get("group")
    keys = list(group.expressions) if group else []
    if with_subquery := next(filter(has_subquery, keys), None):
        raise Unsupported.construct(
            "GROUP BY a subquery",
            reason="Millstream does not maintain it yet.",
            way_round="Compute it in a subquery of FROM, and group by its column.", node=with_subquery)  # fmt: skip
    return keys


def _expand_sets(
    keys: list[exp.Expression], source: BoundRows, builder: SubqueryBuilder
) -> tuple[BoundRows, list[Expr]]:
    """Call the set-returning functions of the keys; return the rows, and the keys over them."""
    relation, computed = builder.sets.expand(
        source.rows, [source.scope.resolve(key) for key in keys]
    )
    renamed = dict(zip(source.rows.columns, relation.columns, strict=False))
    columns = {old: Expr(new.sql) for old, new in renamed.items()}
    refs = tuple(ref.substitute(columns) for ref in source.binding_refs)
    return BoundRows(relation, source.scope.with_renamed(renamed), refs, source.bindings), computed


class _OverGroups:
    """Turns expressions of the clauses above GROUP BY into expressions over the groups.

    Subqueries inside aggregates are joined to the rows that are grouped, all others to the groups.
    """

    def __init__(self, grouping: Grouping, source: BoundRows, subqueries: Subqueries) -> None:
        self.grouping = grouping
        self.source = source
        self.subqueries = subqueries
        self.rows_host = Host(source.rows, source.scope)
        self.host = Host(None, source.scope, grouping.over, ungrouped_rows=source.rows)
        grouping.joined_aliases = self.host.joined_aliases
        if clock.COLUMN in source.scope.columns:
            self.host.joined_aliases.add(source.scope.columns[clock.COLUMN].alias)

    def expression(self, node: exp.Expression) -> Expr:
        """Resolve an expression over the groups; collect its aggregates and join its subqueries."""
        outside, columns = self.subqueries.in_calls(node, self.rows_host)
        resolved = self.subqueries.expression(outside, self.host)
        return self.grouping.over(resolved.substitute(columns))

    def relation(self, *, one_row: bool) -> Relation:
        """Return the groups with the subqueries joined; with `one_row`, one row per binding even
        over no rows.
        """
        source = self.source
        grouped = refuse_unresolved(
            lambda: self.grouping.relation(self.rows_host.apply_joins(source.rows))
        )
        fresh = self.subqueries.builder.fresh
        groups = (
            one_row_per_binding(grouped, source.bindings, fresh)
            if source.bindings and one_row
            else grouped
        )
        return refuse_unresolved(lambda: self.host.apply_joins(groups))
