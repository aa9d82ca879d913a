"""The select list: the rows as a query shows them, what it orders by beside them until that is done."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Named, Project, Relation
from millstream.algebra.types import PgType
from millstream.sql.carried import Fresh
from millstream.sql.first_rows import distinct_on, first_of_each, limited
from millstream.sql.given import GIVEN
from millstream.sql.set_operations import distinct


def shown(
    select: exp.Select,
    relation: Relation,
    exprs: list[Expr],
    carried: int,
    types: Callable[[], tuple[PgType, ...]],
    fresh: Fresh,
) -> Relation:
    """The select list, each row once where that is asked for, the first ones where that is."""
    names = unique([item.alias_or_name for item in select.expressions])
    place = len(exprs) - carried
    items, rest, kept = exprs[: len(names)], exprs[len(names) : place], exprs[place:]
    on, sorted_by = rest[: len(distinct_on(select))], rest[len(distinct_on(select)) :]
    carrying = [Named(f"{GIVEN}{n}", one) for n, one in enumerate(kept)]
    if on:
        listed = [Named(name, one) for name, one in zip(names, items, strict=True)]
        return first_of_each(select, relation, listed, carrying, types(), on, sorted_by, fresh)
    extra = [one for one in dict.fromkeys(sorted_by) if one not in items]
    if not items:
        # EXISTS (SELECT FROM ...): a row without columns is a row.
        names, items = ["one"], [Expr("1")]
    outputs = [*(Named(name, one) for name, one in zip(names, items, strict=True)),
               *(Named(f"__ms_order_{n}", one) for n, one in enumerate(extra)), *carrying]  # fmt: skip
    whole: Relation = Project(relation, tuple(outputs), fresh("q"))
    if select.args.get("distinct"):
        whole = distinct(whole, fresh)
    ordering = [Expr(whole.columns[(items + extra).index(one)].sql) for one in sorted_by]
    return limited(select, whole, names, ordering, carried, types, fresh)


def unique(names: list[str]) -> list[str]:
    """Names of which no two are the same: in a subquery two columns may have one, as long as nobody uses it."""
    return [name if name not in names[:n] else f"{name} ({n})" for n, name in enumerate(names)]
