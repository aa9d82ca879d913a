"""GROUPING SETS, ROLLUP and CUBE: the grouping sets they stand for.

    GROUP BY a, ROLLUP (b, c)    ->    (a, b, c), (a, b), (a)

Each set becomes an aggregate of its own; their rows together are the query's. Where a key is not in the set it is
NULL, and GROUPING tells so by a number.
"""

from __future__ import annotations

from itertools import combinations, product

from sqlglot import exp

from millstream.algebra.expr import Expr, transform, unwrapped

Set = tuple[exp.Expression, ...]


def sets_of(group: exp.Group) -> list[Set] | None:
    """The grouping sets; None for a plain GROUP BY."""
    items = [
        *group.expressions,
        *(one for kind in ("grouping_sets", "rollup", "cube") for one in group.args.get(kind) or ()),
    ]
    if not any(isinstance(item, exp.GroupingSets | exp.Rollup | exp.Cube) for item in items):
        return None
    return [tuple(key for part in parts for key in part) for parts in product(*map(_sets, items))]


def _sets(item: exp.Expression) -> list[Set]:
    if isinstance(item, exp.GroupingSets):
        return [one for inner in item.expressions for one in _sets(inner)]
    if isinstance(item, exp.Rollup):
        parts = [_keys(one) for one in item.expressions]
        return [tuple(key for part in parts[:n] for key in part) for n in range(len(parts), -1, -1)]
    if isinstance(item, exp.Cube):
        parts = [_keys(one) for one in item.expressions]
        chosen = [one for n in range(len(parts), -1, -1) for one in combinations(parts, n)]
        return [tuple(key for part in one for key in part) for one in chosen]
    return [_keys(item)]


def _keys(item: exp.Expression) -> Set:
    """The keys of one element: (a, b), (a) or a."""
    inner = unwrapped(item)
    return tuple(inner.expressions) if isinstance(inner, exp.Tuple) else (inner,)


def numbered(node: exp.Expression, present: set[str]) -> exp.Expression:
    """The expression with each GROUPING(...) as the number it is in a set; `present` are its keys, as text."""

    def replace(part: exp.Expression) -> exp.Expression:
        if not (isinstance(part, exp.Anonymous | exp.Func) and _is_grouping(part)):
            return part
        bits = ["0" if Expr.of(unwrapped(one)).sql in present else "1" for one in part.expressions]
        return exp.Literal.number(int("".join(bits), 2))

    return transform(node, replace)


def _is_grouping(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.name).lower() == "grouping"
