"""The first rows of a query: LIMIT and OFFSET, and DISTINCT ON, which keeps the first of each partition.

An order means nothing in a table, unless it decides which rows are in it.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Filter, Limit, Named, Order, Project, Relation
from millstream.algebra.types import PgType
from millstream.compiler.clauses import clock
from millstream.compiler.clauses.windows import build_windows
from millstream.compiler.decorrelate.clauses import FreshAlias, limit_per_binding, tie_breakers
from millstream.errors import Unsupported


def apply_limit(
    query: exp.Expression,
    relation: Relation,
    names: list[str],
    sorted_by: list[Expr],
    binding_refs: int,
    types: Callable[[], tuple[PgType, ...]],
    fresh: FreshAlias,
) -> Relation:
    """The first rows, if LIMIT or OFFSET asks for them; without either, order means nothing in a table."""
    count = limit_text(query)
    if not count:
        return relation
    hows = [_how(how) for how in query.args["order"].expressions] if sorted_by else []
    order = tuple(Order(one, how) for one, how in zip(sorted_by, hows, strict=True))
    if binding_refs:
        return limit_per_binding(query, relation, names, order, binding_refs, types(), fresh)
    limit = Limit(relation, order, count, fresh("l"))
    outputs = tuple(Named(name, Expr(ref.sql)) for name, ref in zip(names, limit.columns, strict=False))
    return Project(limit, outputs, fresh("q"))


def apply_distinct_on(
    select: exp.Select,
    relation: Relation,
    shown: list[Named],
    carrying: list[Named],
    types: tuple[PgType, ...],
    on: list[Expr],
    sorted_by: list[Expr],
    fresh: FreshAlias,
) -> Relation:
    """DISTINCT ON: the first row of each partition; ties are told apart by all columns."""
    if limit_text(select):
        raise Unsupported.construct(
            "DISTINCT ON with LIMIT", reason="Millstream does not maintain it yet.",
            way_round="Put the DISTINCT ON into a subquery.",
        )  # fmt: skip
    hows = [_how(one) for one in select.args["order"].expressions] if sorted_by else []
    ordered = [f"{one.sql} {how}" for one, how in zip(sorted_by, hows, strict=True)]
    keys = ", ".join(one.sql for one in (*on, *(kept.expr for kept in carrying)))
    order = ", ".join([*ordered, *tie_breakers([one.expr for one in shown], types)])
    number = Expr.parse(f"row_number() OVER (PARTITION BY {keys} ORDER BY {order})")
    every = [*shown, *carrying]
    relation, exprs = build_windows(relation, [*(one.expr for one in every), number], fresh)
    first = Filter(relation, Expr.parse(f"({exprs[-1].sql}) = 1"))
    outputs = tuple(Named(named.name, one) for named, one in zip(every, exprs, strict=False))
    return Project(first, outputs, fresh("q"))


def distinct_on_expressions(select: exp.Select) -> list[exp.Expression]:
    """The expressions of DISTINCT ON."""
    distinct = select.args.get("distinct")
    on = distinct.args.get("on") if distinct else None
    return list(on.expressions) if on else []


def order_terms(select: exp.Select) -> list[exp.Expression]:
    """What a SELECT orders by, where that decides which rows are in it."""
    order = select.args.get("order")
    distinct = select.args.get("distinct")
    matters = limit_text(select) or (distinct is not None and distinct.args.get("on") is not None)
    return [one.this for one in order.expressions] if order and matters else []


def limit_text(query: exp.Expression) -> str:
    """LIMIT and OFFSET, as PostgreSQL reads them; empty where there is neither."""
    found = [query.args.get(name) for name in ("limit", "offset")]
    if any(one is not None and (one.find(exp.Select) or clock.mentions_clock(one)) for one in found):
        raise Unsupported.construct(
            "LIMIT or OFFSET by a subquery or by the time",
            reason="How many rows there are would change without a change of them.",
            way_round="Write a number.",
        )  # fmt: skip
    return " ".join(printed(one).strip() for one in found if one is not None)


def _how(order: exp.Expression) -> str:
    nulls = "NULLS FIRST" if order.args.get("nulls_first") else "NULLS LAST"
    return f"{'DESC' if order.args.get('desc') else 'ASC'} {nulls}"
