"""Build the select list, with DISTINCT, ORDER BY and LIMIT; sort columns are carried along until LIMIT is applied."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Named, Project, Relation
from millstream.algebra.types import PgType
from millstream.compiler.clauses.limit import apply_distinct_on, apply_limit, distinct_on_expressions
from millstream.compiler.clauses.set_operations import INT4, distinct_rows
from millstream.compiler.decorrelate.bindings import binding_name
from millstream.compiler.decorrelate.clauses import FreshAlias, OutputColumns


def build_select_list(
    select: exp.Select,
    relation: Relation,
    exprs: list[Expr],
    binding_refs: int,
    types: Callable[[], tuple[PgType, ...]],
    fresh: FreshAlias,
) -> Relation:
    """Project rows to the select list, then apply DISTINCT or DISTINCT ON, and LIMIT.

    `exprs` are the select items, DISTINCT ON, ORDER BY and, last, the binding columns.
    """
    names = unique_names([item.alias_or_name for item in select.expressions])
    place = len(exprs) - binding_refs
    items, rest, kept = exprs[: len(names)], exprs[len(names) : place], exprs[place:]
    on, sorted_by = rest[: len(distinct_on_expressions(select))], rest[len(distinct_on_expressions(select)) :]
    carrying = [Named(binding_name(n), one) for n, one in enumerate(kept)]
    if on:
        listed = [Named(name, one) for name, one in zip(names, items, strict=True)]
        return apply_distinct_on(select, relation, listed, carrying, types(), on, sorted_by, fresh)
    extra = [one for one in dict.fromkeys(sorted_by) if one not in items]
    if not items:
        # EXISTS (SELECT FROM ...): a row without columns is a row.
        names, items, types = ["one"], [Expr("1")], lambda: (INT4,)
    outputs = [*(Named(name, one) for name, one in zip(names, items, strict=True)),
               *(Named(f"__ms_order_{n}", one) for n, one in enumerate(extra)), *carrying]  # fmt: skip
    whole: Relation = Project(relation, tuple(outputs), fresh("q"))
    if select.args.get("distinct"):
        whole = distinct_rows(whole, fresh)
    ordering = [Expr(whole.columns[(items + extra).index(one)].sql) for one in sorted_by]
    return apply_limit(select, whole, ordering, OutputColumns(tuple(names), binding_refs, types), fresh)


def unique_names(names: list[str]) -> list[str]:
    """Return unique names: a subquery may give one name to two columns if nobody refers to it."""
    return [name if name not in names[:n] else f"{name} ({n})" for n, name in enumerate(names)]
