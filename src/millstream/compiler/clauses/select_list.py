"""Build the select list, with DISTINCT, ORDER BY and LIMIT; sort columns are carried along until
LIMIT is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Named, Project, Relation
from millstream.algebra.types import PgType
from millstream.compiler.clauses.limit import (
    SelectList,
    apply_distinct_on,
    apply_limit,
    distinct_on_expressions,
    order_terms,
)
from millstream.compiler.clauses.set_operations import INT4, distinct_rows
from millstream.compiler.decorrelate.bindings import binding_name
from millstream.compiler.decorrelate.clauses import FreshAlias, OutputColumns
from millstream.compiler.decorrelate.syntax import select_expressions


def listed_expressions(select: exp.Select) -> list[exp.Expression]:
    """Return the select items, and the expressions of DISTINCT ON and of ORDER BY."""
    return select_expressions(select) + distinct_on_expressions(select) + order_terms(select)


def select_list_of(
    select: exp.Select,
    exprs: Sequence[Expr],
    binding_count: int,
    types: Callable[[], tuple[PgType, ...]],
) -> SelectList:
    """Sort the resolved `listed_expressions`, and the binding columns after them, by their clauses."""
    names = unique_names([item.alias_or_name for item in select.expressions])
    before_order = len(names) + len(distinct_on_expressions(select))
    before_bindings = len(exprs) - binding_count
    bindings = exprs[before_bindings:]
    return SelectList(
        outputs=tuple(Named(name, expr) for name, expr in zip(names, exprs, strict=False)),
        distinct_on=tuple(exprs[len(names) : before_order]),
        sort_keys=tuple(exprs[before_order:before_bindings]),
        bindings=tuple(Named(binding_name(number), expr) for number, expr in enumerate(bindings)),
        types=types,
    )


def build_select_list(
    select: exp.Select, relation: Relation, listed: SelectList, fresh: FreshAlias
) -> Relation:
    """Project rows to the select list, then apply DISTINCT or DISTINCT ON, and LIMIT."""
    if listed.distinct_on:
        return apply_distinct_on(select, relation, listed, fresh)
    if not listed.outputs:
        # EXISTS (SELECT FROM ...): a row without columns is a row.
        listed = replace(listed, outputs=(Named("one", Expr("1")),), types=lambda: (INT4,))
    exprs = [output.expr for output in listed.outputs]
    unlisted = [key for key in dict.fromkeys(listed.sort_keys) if key not in exprs]
    sort_columns = [Named(f"__ms_order_{number}", key) for number, key in enumerate(unlisted)]
    whole: Relation = Project(
        relation, (*listed.outputs, *sort_columns, *listed.bindings), fresh("q")
    )
    if select.args.get("distinct"):
        whole = distinct_rows(whole, fresh)
    sortable = [*exprs, *unlisted]
    sort_keys = [Expr(whole.columns[sortable.index(key)].sql) for key in listed.sort_keys]
    output = OutputColumns(
        tuple(output.name for output in listed.outputs), len(listed.bindings), listed.types
    )
    return apply_limit(select, whole, sort_keys, output, fresh)


def unique_names(names: list[str]) -> list[str]:
    """Return unique names: a subquery may give one name to two columns if nobody refers to it."""
    return [name if name not in names[:n] else f"{name} ({n})" for n, name in enumerate(names)]
