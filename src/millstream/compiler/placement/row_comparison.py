"""Expand comparisons of rows, and with lists, into comparisons of values, which Spark can compute.

    (a, b) < (c, d)          a < c OR (a = c AND b < d)
    x = ANY (ARRAY[y, z])    x = y OR x = z                which is x IN (y, z)
    x <> ALL (ARRAY[y, z])   x <> y AND x <> z

PostgreSQL does the same, with NULLs too: the first pair that is not equal decides, and a NULL
before it makes the result NULL. Any other comparison stays as it is, such as one with an array
column: x = ANY (t.numbers).

>>> from millstream.algebra.expr import Expr
>>> Expr.of(expand_row_comparison(Expr("ROW(a, b) <= ROW(c, d)").tree))
Expr(sql='(a < c) OR ((a = c) AND (b <= d))')
>>> Expr.of(expand_row_comparison(Expr("x <> ALL (ARRAY[y, z])").tree))
Expr(sql='(x <> y) AND (x <> z)')
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from millstream.algebra.expr import is_quantified, is_record, is_row, parenthesised, unwrapped

Comparison = type[exp.Expression]

# Of each order: the one by which all pairs but the last are compared.
_STRICT: dict[Comparison, Comparison] = {
    exp.LT: exp.LT,
    exp.LTE: exp.LT,
    exp.GT: exp.GT,
    exp.GTE: exp.GT,
}
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
# Each value of a list is read with each row; a longer one is left to PostgreSQL.
LONGEST = 50


def expand_row_comparison(node: exp.Expression) -> exp.Expression:
    """Expand a comparison of rows or with a list; return any other node unchanged."""
    if values := listed_values(node):
        connective = exp.Or if isinstance(node.expression, exp.Any) else exp.And
        parts = [_pair(type(node), node.this, value) for value in values]
        return unwrapped(reduce(lambda one, other: connective(this=one, expression=other), parts))
    if type(node) in _STRICT and _is_flat_row(node.this) and _is_flat_row(node.expression):
        return _expand_order(type(node), _values(node.this), _values(node.expression))
    return node


def listed_values(node: exp.Expression) -> list[exp.Expression]:
    """Return the values of the list that a node compares with; empty if it is not a short list of
    values.
    """
    array = (
        unwrapped(node.expression.this)
        if isinstance(node, _COMPARED) and is_quantified(node)
        else None
    )
    values = _values(array) if isinstance(array, exp.Array) else []
    odd = any(isinstance(one, exp.Query | exp.Array) or is_record(one) for one in values)
    return [] if odd or len(values) > LONGEST else values


def _is_flat_row(node: exp.Expression) -> bool:
    """True if a node is a row of values.

    Rows inside a row are compared differently: NULLs are equal there.
    """
    return is_row(node) and not any(map(is_record, _values(node)))


def _values(node: exp.Expression) -> list[exp.Expression]:
    return list(unwrapped(node).expressions)


def _expand_order(
    kind: Comparison, one: Sequence[exp.Expression], other: Sequence[exp.Expression]
) -> exp.Expression:
    if len(one) == 1:
        return unwrapped(_pair(kind, one[0], other[0]))
    rest = exp.Paren(this=_expand_order(kind, one[1:], other[1:]))
    equal = exp.And(this=_pair(exp.EQ, one[0], other[0]), expression=rest)
    return exp.Or(this=_pair(_STRICT[kind], one[0], other[0]), expression=exp.Paren(this=equal))


def _pair(kind: Comparison, one: exp.Expression, other: exp.Expression) -> exp.Expression:
    sides = (parenthesised(side.copy()) for side in (one, other))
    return exp.Paren(this=kind(this=next(sides), expression=next(sides)))
