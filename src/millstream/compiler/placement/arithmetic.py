"""Split numeric arithmetic across tables, under a sum, between Spark and PostgreSQL.

    sum(t.n * u.q)      Spark adds up the products. If it has no number for a product (NaN, an infinity, too many
                        digits) it adds 0 and sends the operands beside it, as JSON: PostgreSQL multiplies them.

Only `+`, `-`, `*` of numbers are split. They are NULL exactly if an operand is. So if try_add(), try_subtract() or
try_multiply() returns NULL though no operand is NULL, Spark has no number for the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.block import Use
from millstream.algebra.expr import Expr, unwrapped
from millstream.algebra.types import PgType
from millstream.algebra.wire import Wire, number_wire_of
from millstream.compiler.placement.place import Placer
from millstream.compiler.placement.placement import TEXT, Placement
from millstream.compiler.placement.spark_exact import Travels, result_wire
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


@dataclass(frozen=True)
class _Operand:
    """A number over one table, as Spark and PostgreSQL read it."""

    spark: str
    wire: Wire
    type: PgType
    text: str
    """Spark's expression of its text, NULL if the operand is NULL."""


@dataclass(frozen=True)
class _Tried:
    """A part of the argument: Spark's expression, which is NULL if Spark has no number, and PostgreSQL's."""

    spark: str
    travels: Travels
    written: str


class _Operands:
    """Collects the operands of one argument."""

    def __init__(self, placer: Placer) -> None:
        self.placer = placer
        self.texts: list[str] = []

    def add(self, operand: _Operand) -> _Tried:
        """Add an operand; PostgreSQL reads it from the JSON object by its number."""
        number = len(self.texts)
        self.texts.append(operand.text)
        name = "numeric" if operand.type.base == "numeric" else operand.type.name
        return _Tried(operand.spark, (operand.wire, operand.type), f"({{p}} ->> 'p{number}')::{name}")

    @property
    def all_present(self) -> str:
        """The condition that no operand is NULL."""
        return " AND ".join(f"({text}) IS NOT NULL" for text in self.texts)

    @property
    def object(self) -> str:
        """The JSON object of the operands, each as its text."""
        fields = ", ".join(f"'p{number}', CAST({text} AS TEXT)" for number, text in enumerate(self.texts))
        return f"TO_JSON(NAMED_STRUCT({fields}))"


def split_arithmetic(placer: Placer, expression: Expr) -> ArithmeticArgument | Unsupported | None:
    """Return the split argument of a sum; None if it is not arithmetic with a numeric across tables."""
    has_numeric = any(placer.types[part].base == "numeric" for part in placer.parts(expression))
    if placer.is_over_one_table(expression) or not has_numeric:
        return None
    operands = _Operands(placer)
    tried = _tried(operands, unwrapped(expression.node))
    if not isinstance(tried, _Tried):
        return tried
    wire, _ = tried.travels
    present = operands.all_present
    value = Expr.parse(f"COALESCE({tried.spark}, CASE WHEN {present} THEN CAST(0 AS {wire.spark}) END)")
    sent = Expr.parse(f"CASE WHEN ({tried.spark}) IS NULL AND {present} THEN {operands.object} END")
    return ArithmeticArgument(
        Placement(value, wire, None), Placement(sent, Wire("string", "string"), TEXT), tried.written
    )


def _tried(operands: _Operands, node: exp.Expression) -> _Tried | Unsupported | None:
    """Return both expressions of a part; None if it is more than operators over numbers."""
    if operands.placer.is_over_one_table(Expr.of(node)):
        return _operand(operands, Expr.of(node))
    if isinstance(node, exp.Neg):
        inner = _tried(operands, unwrapped(node.this))
        if not isinstance(inner, _Tried):
            return inner
        return _Tried(f"TRY_SUBTRACT(0, {inner.spark})", inner.travels, f"(- {inner.written})")
    if type(node) not in _TRIED:
        return None
    first, *operators = operands.placer.chain(node)
    tried = _tried(operands, unwrapped(first))
    for operator in operators:
        if not isinstance(tried, _Tried):
            break
        tried = _with_operator(operands, operator, tried)
    return tried


def _with_operator(operands: _Operands, operator: exp.Expression, left: _Tried) -> _Tried | Unsupported | None:
    right = _tried(operands, unwrapped(operator.expression))
    if not isinstance(right, _Tried):
        return right
    travels = result_wire(operator, left.travels, right.travels)
    if isinstance(travels, Unsupported):
        return travels
    kind = type(operator)
    written = f"({left.written} {_SIGNS[kind]} {right.written})"
    return _Tried(f"{_TRIED[kind]}({left.spark}, {right.spark})", travels, written)


_SIGNS: dict[type[exp.Expression], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def _operand(operands: _Operands, expression: Expr) -> _Tried | Unsupported | None:
    """Place a number over one table; return None if it is not an integer or a numeric."""
    type_ = operands.placer.types[expression]
    if type_.base == "numeric" and type_.kind == "base":
        placed = collect(operands.placer.place(expression, use) for use in _TRIED_USES)
        if isinstance(placed, Unsupported):
            return placed
        number, text = placed
        either = f"COALESCE({text.expr.sql}, CAST({number.expr.sql} AS TEXT))"
        return operands.add(_Operand(number.expr.sql, number.wire, type_, either))
    wire = number_wire_of(type_)
    if wire is None or wire.number != "int":
        return None
    integer = operands.placer.place(expression, "number")
    if isinstance(integer, Unsupported):
        return integer
    return operands.add(_Operand(integer.expr.sql, integer.wire, type_, integer.expr.sql))


_TRIED_USES: tuple[Use, Use] = ("tried", "untried")
