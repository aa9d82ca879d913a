"""Split numeric arithmetic across tables, under a sum, between Spark and PostgreSQL.

    sum(t.n * u.q)      Spark adds up the products. If it has no number for a product (NaN, an infinity, too many
                        digits) it adds 0 and sends the operands beside it, as JSON: PostgreSQL multiplies them.

Only `+`, `-`, `*` of numbers are split. They are NULL exactly if an operand is. So if try_add(), try_subtract() or
try_multiply() returns NULL though no operand is NULL, Spark has no number for the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from millstream.algebra.block import Use
from millstream.algebra.expr import Expr, unwrapped
from millstream.algebra.types import PgType
from millstream.algebra.wire import Wire, number_wire_of
from millstream.compiler.placement.place import Placer
from millstream.compiler.placement.placement import TEXT, Placement
from millstream.compiler.placement.spark_exact import result_wire
from millstream.compiler.refusal import collect
from millstream.errors import Unsupported

_TRIED: dict[type[exp.Expression], str] = {exp.Add: "TRY_ADD", exp.Sub: "TRY_SUBTRACT", exp.Mul: "TRY_MULTIPLY"}


@dataclass(frozen=True)
class ArithmeticArgument:
    """A sum's argument: the number, the operands where Spark has none, and PostgreSQL's expression over these.

    In `expression`, `{p}` stands for the JSON object of the operands.
    """

    value: Placement
    operands: Placement
    expression: str


@dataclass
class _Operands:
    placer: Placer
    present: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def split_arithmetic(placer: Placer, expression: Expr) -> ArithmeticArgument | Unsupported | None:
    """Return the split argument of a sum; None if it is not arithmetic with a numeric across tables."""
    if placer.is_over_one_table(expression) or not any(
        placer.types[part].base == "numeric" for part in placer.parts(expression)
    ):
        return None
    operands = _Operands(placer)
    found = _tried(operands, unwrapped(expression.node))
    if found is None or isinstance(found, Unsupported):
        return found
    spark, wire, _, written = found
    there = " AND ".join(operands.present)
    value = Expr.parse(f"COALESCE({spark}, CASE WHEN {there} THEN CAST(0 AS {wire.spark}) END)")
    listed = ", ".join(f"'p{n}', {text}" for n, text in enumerate(operands.texts))
    beyond = Expr.parse(f"CASE WHEN ({spark}) IS NULL AND {there} THEN TO_JSON(NAMED_STRUCT({listed})) END")
    return ArithmeticArgument(Placement(value, wire, None), Placement(beyond, Wire("string", "string"), TEXT), written)


# Spark's expression, how it travels, its type if PostgreSQL has one, and PostgreSQL's expression.
_Tried = tuple[str, Wire, PgType | None, str]


def _tried(operands: _Operands, node: exp.Expression) -> _Tried | Unsupported | None:
    """Return both expressions of a part; None if it is more than operators over numbers."""
    if operands.placer.is_over_one_table(Expr.of(node)):
        return _operand(operands, Expr.of(node))
    if isinstance(node, exp.Neg):
        found = _tried(operands, unwrapped(node.this))
        if found is None or isinstance(found, Unsupported):
            return found
        spark, wire, type_, written = found
        return f"TRY_SUBTRACT(0, {spark})", wire, type_, f"(- {written})"
    if type(node) not in _TRIED:
        return None
    first, *operators = operands.placer.chain(node)
    found = _tried(operands, unwrapped(first))
    for operator in operators:
        if found is None or isinstance(found, Unsupported):
            break
        found = _with_operator(operands, operator, found)
    return found


def _with_operator(operands: _Operands, operator: exp.Expression, left: _Tried) -> _Tried | Unsupported | None:
    right = _tried(operands, unwrapped(operator.expression))
    if right is None or isinstance(right, Unsupported):
        return right
    travels = result_wire(operator, (left[1], left[2]), (right[1], right[2]))
    if isinstance(travels, Unsupported):
        return travels
    spark = f"{_TRIED[type(operator)]}({left[0]}, {right[0]})"
    return spark, *travels, f"({left[3]} {_SIGNS[type(operator)]} {right[3]})"


_SIGNS: dict[type[exp.Expression], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def _operand(operands: _Operands, expression: Expr) -> _Tried | Unsupported | None:
    placer, type_ = operands.placer, operands.placer.types[expression]
    if type_.base == "numeric" and type_.kind == "base":
        return _numeric(operands, expression, type_)
    wire = number_wire_of(type_)
    if wire is None or wire.number != "int":
        return None
    placed = placer.place(expression, "number")
    if isinstance(placed, Unsupported):
        return placed
    return _noted(operands, placed.expr.sql, f"({placed.expr.sql}) IS NOT NULL", placed.expr.sql, placed.wire, type_)


def _numeric(operands: _Operands, expression: Expr, type_: PgType) -> _Tried | Unsupported:
    uses: tuple[Use, Use] = ("tried", "untried")
    placed = collect(operands.placer.place(expression, use) for use in uses)
    if isinstance(placed, Unsupported):
        return placed
    value, other = placed
    text = f"COALESCE({other.expr.sql}, CAST({value.expr.sql} AS TEXT))"
    return _noted(operands, value.expr.sql, f"({text}) IS NOT NULL", text, value.wire, type_)


def _noted(operands: _Operands, spark: str, present: str, text: str, wire: Wire, type_: PgType) -> _Tried:
    operands.present.append(present)
    operands.texts.append(f"CAST({text} AS TEXT)")
    name = type_.name if type_.base != "numeric" else "numeric"
    return spark, wire, type_, f"({{p}} ->> 'p{len(operands.texts) - 1}')::{name}"
