"""Split numeric arithmetic across tables, under a sum, between Spark and PostgreSQL.

    sum(t.n * u.q)      Spark adds up the products. If it has no number for a product (NaN, an infinity, too many
                        digits) it adds 0 and sends the operands beside it, as JSON: PostgreSQL multiplies them.

What is tried, and how, is in `decimals/attempt.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.algebra.expr import Expr
from millstream.algebra.wire import Wire
from millstream.compiler.placement.decimals.attempt import Attempts
from millstream.compiler.placement.place import Placer
from millstream.compiler.placement.placement import TEXT, Placement
from millstream.errors import Unsupported


@dataclass(frozen=True)
class ArithmeticArgument:
    """A sum's argument: the number, the operands where Spark has none, and PostgreSQL's expression
    over these.

    In `expression`, `{p}` stands for the JSON object of the operands.
    """

    value: Placement
    operands: Placement
    expression: str


def split_arithmetic(placer: Placer, expression: Expr) -> ArithmeticArgument | Unsupported | None:
    """Return the split argument of a sum; None if it is not arithmetic with a numeric across
    tables.
    """
    has_numeric = any(placer.types[part].base == "numeric" for part in placer.parts(expression))
    if placer.is_over_one_table(expression) or not has_numeric:
        return None
    attempts = Attempts(placer)
    tried = attempts.of(expression.node)
    if tried is None or isinstance(tried, Unsupported):
        return tried
    if tried.is_integer or not tried.has_decimal:
        return None
    value = Expr.parse(
        f"COALESCE({tried.value}, CASE WHEN {tried.present} THEN CAST(0 AS {tried.wire.spark}) END)"
    )
    listed = ", ".join(f"'p{n}', {text}" for n, text in enumerate(attempts.operands))
    untried = f"({tried.value}) IS NULL AND {tried.present}"
    beyond = Expr.parse(f"CASE WHEN {untried} THEN TO_JSON(NAMED_STRUCT({listed})) END")
    return ArithmeticArgument(
        Placement(value, tried.wire, None),
        Placement(beyond, Wire("string", "string"), TEXT),
        tried.written,
    )
