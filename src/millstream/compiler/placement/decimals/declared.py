"""Infer how many digits a numeric expression has, where its columns declare theirs.

PostgreSQL forgets precision and scale as soon as it computes: `price * quantity` is just `numeric`.
But its rules are plain, and a sum must show as many digits after the point as PostgreSQL's does:

    a + b, a - b    the larger scale          a * b    the sum of the scales
    -a, CASE, COALESCE                        the scale all parts share; otherwise it is not known

>>> of = {"price": Digits(10, 2), "quantity": Digits(10, 0)}
>>> digits_of(Expr.parse("price * quantity"), lambda ref: of.get(ref.column))
Digits(before=20, after=2)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, ref_of, unwrapped
from millstream.algebra.types import PgType

INTEGERS = {"int2": 5, "int4": 10, "int8": 19}


@dataclass(frozen=True)
class Digits:
    """Digits before and after the point; every value has exactly `after`."""

    before: int
    after: int


Known = Callable[[Ref], Digits | None]


def digits_of(expression: Expr, known: Known) -> Digits | None:
    """Return the digits of an expression; None if they are not known."""
    return _digits(expression.tree, known)


def digits_of_type(type_: PgType) -> Digits | None:
    """Return the digits that the type of a column declares; None if it declares none."""
    if type_.base in INTEGERS:
        return Digits(INTEGERS[type_.base], 0)
    if (
        type_.base == "numeric"
        and type_.precision is not None
        and type_.scale is not None
        and type_.scale >= 0
    ):
        return Digits(max(type_.precision - type_.scale, 0), type_.scale)
    return None


def _digits(node: exp.Expression, known: Known) -> Digits | None:
    node = unwrapped(node)
    if isinstance(node, exp.Column):
        return known(ref_of(node))
    if isinstance(node, exp.Literal) and not node.is_string:
        return _literal(node.name)
    if isinstance(node, exp.Neg):
        return _digits(node.this, known)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return _computed(node, _digits(node.this, known), _digits(node.expression, known))
    if isinstance(node, exp.Cast):
        return _cast(node, known)
    if isinstance(node, exp.Case | exp.Coalesce):
        return _shared([_digits(value, known) for value in _alternatives(node)])
    return None


def _literal(text: str) -> Digits | None:
    if not text.replace(".", "", 1).isdigit():
        return None
    before, _, after = text.partition(".")
    return Digits(len(before), len(after))


def _computed(node: exp.Expression, one: Digits | None, other: Digits | None) -> Digits | None:
    if one is None or other is None:
        return None
    if isinstance(node, exp.Mul):
        return Digits(one.before + other.before, one.after + other.after)
    return Digits(max(one.before, other.before) + 1, max(one.after, other.after))


def _cast(node: exp.Cast, known: Known) -> Digits | None:
    """Return the digits of a cast: unchanged by a cast to numeric; by one to numeric(p,s), those of
    the modifier.
    """
    to = node.args["to"]
    if not isinstance(to, exp.DataType) or to.this != exp.DType.DECIMAL:
        return None
    if not to.expressions:
        return _digits(node.this, known)
    precision, scale = [*(int(part.name) for part in to.expressions), 0][:2]
    return Digits(max(precision - scale, 0), max(scale, 0))


def _alternatives(node: exp.Expression) -> list[exp.Expression]:
    """Return the alternatives of a CASE or COALESCE without NULLs, which have no digits."""
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        values = [branch.args["true"] for branch in node.args["ifs"]] + (
            [default] if default is not None else []
        )
    else:
        values = [node.this, *node.expressions]
    return [value for value in values if not isinstance(unwrapped(value), exp.Null)]


def _shared(digits: list[Digits | None]) -> Digits | None:
    known = [one for one in digits if one is not None]
    if len(known) != len(digits) or len({one.after for one in known}) != 1:
        return None
    return Digits(max(one.before for one in known), known[0].after)
