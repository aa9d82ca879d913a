"""May an expression fail for some row? Then it must not be computed for a row that the join leaves out.

    a.price * (1 - a.discount)      never: computed while a is read, and Spark adds
    a.text::int, a.x / a.y          for some value: PostgreSQL computes it over the rows of the group, which are joined;
                                    of a key, over the rows of the join, which are kept

What is listed here never fails, whatever the values are. Left aside: numbers that leave the range of their type, and
texts longer than any can be.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.algebra.expr import unwrapped
from millstream.algebra.types import PgType
from millstream.compiler.placement.spark_exact import children

_NEVER = (
    exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Case, exp.Coalesce, exp.And, exp.Or, exp.Not, exp.Is, exp.EQ,
    exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In, exp.Any, exp.All,
    exp.Array, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.DPipe, exp.Extract, exp.JSONExtract, exp.JSONExtractScalar,
    exp.Tuple, exp.Bracket, exp.Interval, exp.Trim,
)  # fmt: skip
_FUNCTIONS = frozenset(
    {
        "abs", "array_length", "btrim", "cardinality", "ceil", "ceiling", "char_length", "concat", "concat_ws",
        "floor", "greatest", "initcap", "isfinite", "jsonb_typeof", "least", "length",
        "lower", "ltrim", "md5", "nullif", "octet_length", "replace", "reverse", "round", "row", "rtrim", "scale",
        "sign", "starts_with", "strpos", "trim_scale", "trunc", "upper",
    }
)  # fmt: skip
# Of these the other arguments are constants: they fail for all rows or for none.
_WITH_CONSTANTS = frozenset({"left", "lpad", "mod", "right", "rpad", "split_part", "substr", "substring", "to_char"})
# Of these the first names a part of a time.
_PARTS = frozenset({"date_part", "date_trunc"})
_TEXTS = frozenset({"text", "varchar", "bpchar", "name"})
_NUMBERS = ("bool", "int2", "int4", "int8", "numeric", "float4", "float8")
# A cast from one of these to the other has a result for each value.
_WIDER = frozenset(
    {
        *((one, other) for place, one in enumerate(_NUMBERS[1:]) for other in _NUMBERS[1 + place :]),
        ("bool", "int4"),
        ("date", "timestamp"), ("timestamp", "date"), ("date", "timestamptz"), ("timestamp", "timestamptz"),
        ("timestamptz", "timestamp"), ("timestamptz", "date"), ("timestamp", "time"), ("numeric", "float8"),
        ("json", "jsonb"), ("jsonb", "json"),
    }
)  # fmt: skip

Typed = Callable[[exp.Expression], PgType]


def may_raise(node: exp.Expression, type_of: Typed) -> bool:
    """Is there anything in it that fails for some value?"""
    node = unwrapped(node)
    if isinstance(node, exp.Cast):
        return may_raise(node.this, type_of) or _cast_may_fail(node, type_of)
    if isinstance(node, exp.Anonymous):
        return _call_may_fail(node.name.lower(), node.expressions, type_of)
    if isinstance(node, exp.Extract):
        return may_raise(node.expression, type_of)
    if isinstance(node, exp.Div | exp.Mod):
        return may_raise(node.this, type_of) or not _is_constant(node.expression) or _is_zero(node.expression)
    if isinstance(node, exp.AtTimeZone):
        return may_raise(node.this, type_of) or not _is_constant(node.args["zone"])
    if isinstance(node, exp.Like | exp.ILike):
        # A pattern must not end with what escapes.
        return may_raise(node.this, type_of) or not _is_constant(node.expression)
    if isinstance(node, exp.Substring):
        return _call_may_fail("substring", children(node), type_of)
    if not isinstance(node, _NEVER):
        return True
    return any(may_raise(child, type_of) for child in children(node) if isinstance(child, exp.Expression))


def _call_may_fail(name: str, arguments: list[exp.Expression], type_of: Typed) -> bool:
    if name in _WITH_CONSTANTS:
        first, *others = arguments
        zero = name == "mod" and any(map(_is_zero, others))
        return zero or may_raise(first, type_of) or not all(map(_is_constant, others))
    if name in _PARTS:
        return not _is_constant(arguments[0]) or any(may_raise(one, type_of) for one in arguments[1:])
    return name not in _FUNCTIONS or any(may_raise(one, type_of) for one in arguments)


def _is_constant(node: exp.Expression) -> bool:
    inner = unwrapped(node)
    inner = unwrapped(inner.this) if isinstance(inner, exp.Cast) else inner
    return isinstance(inner, exp.Literal | exp.Null | exp.Boolean)


def _is_zero(node: exp.Expression) -> bool:
    return not any(digit in node.sql() for digit in "123456789")


def _cast_may_fail(node: exp.Cast, type_of: Typed) -> bool:
    """A constant fails for all rows or for none."""
    inner = unwrapped(node.this)
    if _is_constant(inner):
        return False
    one, other = type_of(inner), type_of(node)
    if other.base in _TEXTS or one == other:
        return False
    shortened = other.precision is not None or other.kind == "domain"
    return shortened or (one.base != other.base and (one.base, other.base) not in _WIDER)
