"""LIMIT and OFFSET, and DISTINCT ON, which keeps the first row of each partition.

A table has no order: ORDER BY matters only where it decides which rows the result has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.dialect import ORDER_USING, printed
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Filter, Limit, Named, Order, Project, Relation
from millstream.algebra.types import PgType
from millstream.compiler.clauses import clock
from millstream.compiler.clauses.windows import build_windows
from millstream.compiler.decorrelate.clauses import (
    FreshAlias,
    OutputColumns,
    limit_per_binding,
    tie_breakers,
)
from millstream.compiler.decorrelate.row_checks import without_row_checks
from millstream.errors import Unsupported


@dataclass(frozen=True)
class SelectList:
    """The expressions of a SELECT, over the rows that it selects from."""

    outputs: tuple[Named, ...]
    distinct_on: tuple[Expr, ...]
    sort_keys: tuple[Expr, ...]
    """The expressions of ORDER BY, if they decide which rows the result has."""
    bindings: tuple[Named, ...]
    """The binding columns: they follow the outputs."""
    types: Callable[[], tuple[PgType, ...]]
    """Asks the server for the types of the outputs."""


def apply_limit(
    query: exp.Expression,
    relation: Relation,
    sort_keys: Sequence[Expr],
    output: OutputColumns,
    fresh: FreshAlias,
) -> Relation:
    """Apply LIMIT and OFFSET; return the relation unchanged if there is neither: a table has no
    order.
    """
    count = limit_text(query)
    if not count:
        return relation
    order = _order(query, sort_keys)
    if output.binding_count:
        return limit_per_binding(query, relation, order, output, fresh)
    relation, checked = without_row_checks(relation, [term.expr for term in order])
    limit = Limit(relation, order, count, fresh("l"))
    limited = dict(zip(relation.columns, (Expr(ref.sql) for ref in limit.columns), strict=True))
    exprs = (checked.get(ref, Expr(ref.sql)).substitute(limited) for ref in relation.columns)
    outputs = tuple(Named(name, expr) for name, expr in zip(output.names, exprs, strict=False))
    return Project(limit, outputs, fresh("q"))


def apply_distinct_on(
    select: exp.Select, relation: Relation, listed: SelectList, fresh: FreshAlias
) -> Relation:
    """Keep the first row of each partition of DISTINCT ON; all columns break ties."""
    assert not limit_text(select), "DISTINCT ON with LIMIT is two steps"
    terms = [term.sql for term in _order(select, listed.sort_keys)]
    ties = tie_breakers([output.expr for output in listed.outputs], listed.types())
    keys = [*listed.distinct_on, *(binding.expr for binding in listed.bindings)]
    partition_by = ", ".join(key.sql for key in keys)
    number = Expr.parse(
        f"row_number() OVER (PARTITION BY {partition_by} ORDER BY {', '.join([*terms, *ties])})"
    )
    columns = [*listed.outputs, *listed.bindings]
    relation, exprs = build_windows(relation, [*(column.expr for column in columns), number], fresh)
    first = Filter(relation, Expr.parse(f"({exprs[-1].sql}) = 1"))
    outputs = tuple(Named(column.name, expr) for column, expr in zip(columns, exprs, strict=False))
    return Project(first, outputs, fresh("q"))


def distinct_on_expressions(select: exp.Select) -> list[exp.Expression]:
    """Return the expressions of DISTINCT ON."""
    distinct = select.args.get("distinct")
    on = distinct.args.get("on") if distinct else None
    return list(on.expressions) if on else []


def order_terms(select: exp.Select) -> list[exp.Expression]:
    """Return the ORDER BY expressions of a SELECT; none if they do not decide which rows it has."""
    order = select.args.get("order")
    distinct = select.args.get("distinct")
    matters = limit_text(select) or (distinct is not None and distinct.args.get("on") is not None)
    return [term.this for term in order.expressions] if order and matters else []


def limit_text(query: exp.Expression) -> str:
    """Return LIMIT and OFFSET as PostgreSQL reads them, '' without either; raise Unsupported if
    they may change.
    """
    clauses = [
        clause for name in ("limit", "offset") if (clause := query.args.get(name)) is not None
    ]
    if changing := [
        clause for clause in clauses if clause.find(exp.Select) or clock.mentions_clock(clause)
    ]:
        raise Unsupported.construct(
            "LIMIT or OFFSET that is a subquery or depends on the time",
            reason="The number of rows would change without a change in the data.",
            way_round="Write a number.",
            node=changing[0],
        )
    return " ".join(printed(clause).strip() for clause in clauses)


def _order(query: exp.Expression, sort_keys: Sequence[Expr]) -> tuple[Order, ...]:
    """Return sort keys with the directions that ORDER BY gives them."""
    directions = (
        [direction_of(term) for term in query.args["order"].expressions] if sort_keys else []
    )
    return tuple(
        Order(key, direction) for key, direction in zip(sort_keys, directions, strict=True)
    )


def direction_of(order: exp.Expression) -> str:
    """Return `ASC NULLS LAST` or the like for a term of ORDER BY."""
    if order.args.get(ORDER_USING):
        raise Unsupported.construct(
            "ORDER BY ... USING an operator, where the order decides what the result is",
            reason="Millstream keeps and compares rows in the order of their type or collation.",
            way_round='Order by an expression or a collation: ORDER BY x COLLATE "C".',
            node=order,
        )
    nulls = "NULLS FIRST" if order.args.get("nulls_first") else "NULLS LAST"
    return f"{'DESC' if order.args.get('desc') else 'ASC'} {nulls}"
