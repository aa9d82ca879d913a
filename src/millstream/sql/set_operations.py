"""DISTINCT and the set operations: aggregates by all columns.

DISTINCT, UNION              the groups
INTERSECT, EXCEPT            those groups whose row stands on both sides, or on the first alone
INTERSECT ALL, EXCEPT ALL    each row as often as both sides have it, or as the first has it more
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Expand,
    Expansion,
    Filter,
    Measure,
    Named,
    Project,
    Relation,
    UnionAll,
)  # fmt: skip
from millstream.algebra.types import PgType
from millstream.sql.carried import Fresh

INT4 = PgType(23, "integer", "int4")


def distinct(relation: Relation, fresh: Fresh) -> Relation:
    """Each row once: the groups of all columns."""
    keys = tuple(Named(f"k{n}", Expr(ref.sql)) for n, ref in enumerate(relation.columns))
    groups = Aggregate(relation, keys, (), fresh("d"))
    return _named_like(relation, groups, fresh)


def _named_like(relation: Relation, groups: Relation, fresh: Fresh) -> Relation:
    outputs = tuple(
        Named(r.column, Expr.ref(g.alias, g.column)) for r, g in zip(relation.columns, groups.columns, strict=False)
    )
    return Project(groups, outputs, fresh("q"))


def combined(
    query: exp.SetOperation, parts: list[Relation], names: tuple[str, ...], types: tuple[PgType, ...], fresh: Fresh
) -> Relation:
    """The rows of two queries, as the operation between them combines them."""
    if isinstance(query, exp.Union):
        united = UnionAll(tuple(parts), names, types, fresh("u"))
        return distinct(united, fresh) if query.args.get("distinct") else united
    return _counted(query, parts, names, types, fresh)


def _counted(
    query: exp.SetOperation, parts: list[Relation], names: tuple[str, ...], types: tuple[PgType, ...], fresh: Fresh
) -> Relation:
    """INTERSECT and EXCEPT: how often each row stands on either side."""
    sided = []
    for number, part in enumerate(parts):
        outputs = tuple(Named(f"c{n}", Expr(ref.sql)) for n, ref in enumerate(part.columns))
        sided.append(Project(part, (*outputs, Named("side", Expr(str(number)))), fresh("side")))
    columns = (*(f"c{n}" for n in range(len(names))), "side")
    united = UnionAll(tuple(sided), columns, (*types, INT4), fresh("u"))
    keys = tuple(Named(f"k{n}", Expr.ref(united.alias, f"c{n}")) for n in range(len(names)))
    sides = [Expr.parse(f'"{united.alias}"."side" = {number}') for number in (0, 1)]
    measures = tuple(Measure(f"m{n}", Call("count", None, side)) for n, side in enumerate(sides))
    groups = Aggregate(united, keys, measures, fresh("d"))
    if not query.args.get("distinct"):
        return _as_often(query, groups, names, fresh)
    test = "> 0" if isinstance(query, exp.Intersect) else "= 0"
    kept = Filter(groups, Expr.parse(f'"{groups.alias}"."m0" > 0 AND "{groups.alias}"."m1" {test}'))
    outputs = tuple(Named(name, Expr.ref(groups.alias, f"k{n}")) for n, name in enumerate(names))
    return Project(kept, outputs, fresh("q"))


def _as_often(query: exp.SetOperation, groups: Aggregate, names: tuple[str, ...], fresh: Fresh) -> Relation:
    """INTERSECT ALL and EXCEPT ALL: each row as often as both sides have it, or as the first has it more."""
    left, right = (Ref(groups.alias, name).sql for name in ("m0", "m1"))
    times = f"LEAST({left}, {right})" if isinstance(query, exp.Intersect) else f"({left} - {right})"
    call = Expansion(fresh("times"), ("n",), Expr.parse(f"generate_series(CAST(1 AS BIGINT), {times})"))
    rows = Expand(groups, call, fresh("x"))
    outputs = tuple(Named(name, Expr.ref(rows.alias, f"c{n}")) for n, name in enumerate(names))
    return Project(rows, outputs, fresh("q"))
