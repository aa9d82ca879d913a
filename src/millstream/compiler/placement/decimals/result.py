"""Tell the decimal of Spark that holds the result of an operator, from the digits of its operands.

    a + b, a - b    one digit more before the point, the larger number after it
    a * b           the sums of both; one more before the point

Of more than 38 digits those before the point are fewer; a value that needs them is an error in
Spark, or NULL where the operator is tried.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.types import PgType
from millstream.algebra.wire import Wire
from millstream.compiler.placement.decimals.declared import INTEGERS
from millstream.compiler.placement.placement import refuse_across_tables
from millstream.errors import Unsupported

# How a value travels, and its type where it has one in PostgreSQL.
Travels = tuple[Wire, PgType | None]

# So many digits after the point leave Spark some before it.
_MOST_AFTER = 30


def result_wire(node: exp.Expression, one: Travels, other: Travels) -> Travels | Unsupported:
    """Return how the result of an operator travels, and its type."""
    numbers = {wire.number for wire, _ in (one, other)}
    if numbers == {"int"}:
        return max(one, other, key=lambda side: INTEGERS[side[1].base] if side[1] else 0)
    if "float" in numbers:
        return refuse_across_tables(
            Expr.of(node), "Floating-point arithmetic overflows silently in Spark."
        )
    wire = decimal_of(node, digits_of_wire(*one), digits_of_wire(*other))
    return (wire, None) if wire is not None else refuse_digits(node)


def refuse_digits(node: exp.Expression) -> Unsupported:
    """Return the refusal of an operator whose result has too many digits after the point."""
    return refuse_across_tables(
        Expr.of(node), "Its exact result has too many digits after the point."
    )


def digits_of_wire(wire: Wire, type_: PgType | None) -> tuple[int, int]:
    """Return the digits before and after the point of a value that travels as a number."""
    if wire.number == "int":
        assert type_ is not None
        return INTEGERS[type_.base], 0
    precision = int(wire.spark.removeprefix("decimal(").split(",")[0])
    return precision - wire.scale, wire.scale


def decimal_of(node: exp.Expression, one: tuple[int, int], other: tuple[int, int]) -> Wire | None:
    """Return the decimal of a result; None if it has too many digits after the point."""
    if isinstance(node, exp.Mul):
        before, after = one[0] + other[0] + 1, one[1] + other[1]
    else:
        before, after = max(one[0], other[0]) + 1, max(one[1], other[1])
    return _decimal(before, after) if after <= _MOST_AFTER else None


def common_decimal(digits: Sequence[tuple[int, int]]) -> Wire:
    """Return the decimal that has the digits of each alternative."""
    return _decimal(max(before for before, _ in digits), max(after for _, after in digits))


def _decimal(before: int, after: int) -> Wire:
    precision = min(38, before + after)
    return Wire(
        "string",
        f"decimal({precision},{after})",
        equal=True,
        ordered=True,
        number="decimal",
        scale=after,
    )
