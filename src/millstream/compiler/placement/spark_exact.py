"""The expressions that Spark computes exactly as PostgreSQL does: `SPARK_EXACT` has a rule for each
kind.

    AND, OR, NOT, IS                    three-valued in both
    =, <>, <, IS NOT DISTINCT FROM      of values that travel the same way; an order, where Spark's is PostgreSQL's
    +, -, *                             of integers, and of numerics whose digits fit; never of floats
    (a, b) < (c, d), IN (a, b)          expanded by `row_comparison.py`
    CASE, COALESCE                      where all alternatives can travel in one way
    CAST                                of an integer to numeric

Any other expression across tables is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from millstream.algebra.block import Use
from millstream.algebra.expr import Expr, Ref, parenthesised, unwrapped
from millstream.algebra.types import PgType
from millstream.algebra.wire import Wire, order_wire_of, wire_of
from millstream.compiler.placement.decimals.attempt import (
    Attempt,
    Attempts,
    compare,
    compare_null_safe,
)
from millstream.compiler.placement.decimals.result import (
    Travels,
    common_decimal,
    digits_of_wire,
    result_wire,
)
from millstream.compiler.placement.placement import BOOL, NUMERIC, Placement, refuse_across_tables
from millstream.compiler.refusal import collect
from millstream.errors import Unsupported
from millstream.spark.numbers import COMPARE


class OperandPlacer(Protocol):
    """The part of the placer that a rule uses."""

    @property
    def types(self) -> Mapping[Expr, PgType]: ...

    def parts(self, expression: Expr) -> Iterator[Expr]: ...

    def place(self, expression: Expr, use: Use) -> Placement | Unsupported: ...

    def type_of(self, node: exp.Expression) -> PgType | Unsupported: ...

    @property
    def lenient(self) -> bool: ...

    def is_over_one_table(self, expression: Expr) -> bool: ...

    def chain(self, node: exp.Expression) -> list[exp.Expression]: ...

    def within(self, ref: Ref) -> AbstractContextManager[Expr]: ...

    def marker(self, ref: Ref) -> str: ...


Rule = Callable[[OperandPlacer, exp.Expression, Use], Placement | Unsupported]


def children(node: exp.Expression) -> list[exp.Expression]:
    """Return the operands of a node: of a CASE its conditions and results, of ANY and ALL the
    array.
    """
    found = list[exp.Expression]()
    for child in node.iter_expressions():
        if isinstance(node, exp.Case) and isinstance(child, exp.If):
            found += [child.this, child.args["true"]]
        elif isinstance(child, exp.Any | exp.All):
            found.append(unwrapped(child.this))
        elif not isinstance(child, exp.DataType | exp.Identifier | exp.Var):
            found.append(child)
    return found


# Operators that PostgreSQL prints as chains, each beside those that it is chained with.
_CHAINED: dict[type[exp.Expression], tuple[type[exp.Expression], ...]] = {
    exp.And: (exp.And,), exp.Or: (exp.Or,), exp.Add: (exp.Add, exp.Sub), exp.Sub: (exp.Add, exp.Sub),
    exp.Mul: (exp.Mul,), exp.DPipe: (exp.DPipe,),
}  # fmt: skip


def spine(node: exp.Expression) -> list[exp.Expression]:
    """Return the first operand of a chain, then each operator with all of its operands, from the
    inside out.

    a + b - c    ->    a, a + b, a + b - c

    A long chain is a deep tree; by its spine it is worked through without descending, each operand
    once.
    """
    kinds, found = _CHAINED.get(type(node), ()), [node]
    while isinstance(found[-1], kinds):
        found.append(unwrapped(found[-1].this))
    return found[::-1]


def _logical(placer: OperandPlacer, node: exp.Expression, use: Use) -> Placement | Unsupported:
    if isinstance(node, exp.Not):
        inner = placer.place(Expr.of(node.this), "carry")
        if isinstance(inner, Unsupported):
            return inner
        return Placement(
            Expr.of(exp.Not(this=exp.Paren(this=inner.expr.node))), wire_of(BOOL), BOOL
        )
    first, *operators = placer.chain(node)
    operands = [first, *(operator.expression for operator in operators)]
    placed = collect(placer.place(Expr.of(operand), "carry") for operand in operands)
    if isinstance(placed, Unsupported):
        return placed
    made: exp.Expression = exp.Paren(this=placed[0].expr.node)
    for operator, right in zip(operators, placed[1:], strict=True):
        made = type(operator)(this=made, expression=exp.Paren(this=right.expr.node))
    return Placement(Expr.of(made), wire_of(BOOL), BOOL)


def _comparison(placer: OperandPlacer, node: exp.Expression, use: Use) -> Placement | Unsupported:
    left, right = (Expr.of(unwrapped(child)) for child in (node.this, node.expression))
    wanted: Use = "number" if _numeric(placer, left) or _numeric(placer, right) else "key"
    if wanted == "number" and _of_any_digits(placer, left, right):
        wanted = "order"
    elif wanted == "number" and (tried := _tried_comparison(placer, node, left, right)) is not None:
        return tried
    sides = collect(placer.place(side, wanted) for side in (left, right))
    if isinstance(sides, Unsupported):
        return sides
    one, other = sides
    ordering = isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE)
    if not _comparable(one, other) or (ordering and not (one.wire.ordered and other.wire.ordered)):
        return refuse_across_tables(
            Expr.of(node), "Its order or equality is not the same in Spark."
        )
    made = type(node)(this=parenthesised(one.expr.node), expression=parenthesised(other.expr.node))
    return Placement(Expr.of(made), wire_of(BOOL), BOOL)


_OPERATORS: dict[type[exp.Expression], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
}  # fmt: skip


def _tried_comparison(
    placer: OperandPlacer, node: exp.Expression, left: Expr, right: Expr
) -> Placement | Unsupported | None:
    """Return the comparison of numbers for which Spark may have none; None if they are not such
    numbers.
    """
    attempts = Attempts(placer, placer.lenient)
    one, other = attempts.of(left.node), attempts.of(right.node)
    if not (isinstance(one, Attempt) and isinstance(other, Attempt)):
        return (
            one
            if isinstance(one, Unsupported)
            else other
            if isinstance(other, Unsupported)
            else None
        )
    if COMPARE in one.array + other.array:
        # Spark has no such function inside the arguments of another call of it.
        return refuse_across_tables(
            Expr.of(node), "It compares a number that a comparison of such numbers chooses."
        )
    operator = _OPERATORS.get(type(node))
    distinct = isinstance(node, exp.NullSafeNEQ)
    made = (
        compare(operator, one, other)
        if operator
        else compare_null_safe(one, other, distinct=distinct)
    )
    return Placement(Expr.parse(made), wire_of(BOOL), BOOL)


def _numeric(placer: OperandPlacer, expression: Expr) -> bool:
    """True if any part of an expression is a numeric: both sides are compared as numbers then."""
    return any(placer.types[part].base == "numeric" for part in placer.parts(expression))


def _of_any_digits(placer: OperandPlacer, *sides: Expr) -> bool:
    """True if both sides are leaves and one is a numeric: it may be NaN, or have too many digits
    for Spark.
    """
    types = [placer.types.get(side) for side in sides]
    exact = all(type_ is not None and order_wire_of(type_) for type_ in types)
    return exact and any(type_ is not None and type_.base == "numeric" for type_ in types)


def _comparable(one: Placement, other: Placement) -> bool:
    if not (one.wire.equal and other.wire.equal):
        return False
    if one.wire == other.wire == order_wire_of(NUMERIC):
        return True
    if one.wire.number and other.wire.number:
        return (one.wire.number == "float") == (other.wire.number == "float")
    return one.wire == other.wire and (
        one.type is None or other.type is None or one.type.base == other.type.base
    )


# The uses in which a value leaves Spark.
_SHOWN: tuple[Use, ...] = ("carry", "key", "printed")


def _refusal_of_shown(placer: OperandPlacer, node: exp.Expression, use: Use) -> Unsupported | None:
    """Return the refusal of a numeric that would leave Spark: it may be NaN, and has its digits
    after the point.
    """
    if use not in _SHOWN or not _numeric(placer, Expr.of(node)):
        return None
    return refuse_across_tables(
        Expr.of(node), "Spark has no number for some values, nor the digits that are shown."
    )


def _arithmetic(placer: OperandPlacer, node: exp.Expression, use: Use) -> Placement | Unsupported:
    if refusal := _refusal_of_shown(placer, node, use):
        return refusal
    first, *operators = placer.chain(node)
    operands = [first, *(operator.expression for operator in operators)]
    placed = collect(placer.place(Expr.of(operand), "number") for operand in operands)
    if isinstance(placed, Unsupported):
        return placed
    one = placed[0]
    # What is chained stands without parentheses, and so is no deeper for Spark than it has
    # operands.
    made: exp.Expression = exp.Paren(this=one.expr.node)
    travels: Travels = one.wire, one.type
    for operator, right in zip(operators, placed[1:], strict=True):
        made = type(operator)(this=made, expression=exp.Paren(this=right.expr.node))
        result = result_wire(operator, travels, (right.wire, right.type))
        if isinstance(result, Unsupported):
            return result
        travels = result
    return Placement(Expr.of(made), *travels)


def _negative(placer: OperandPlacer, node: exp.Expression, use: Use) -> Placement | Unsupported:
    if refusal := _refusal_of_shown(placer, node, use):
        return refusal
    inner = placer.place(Expr.of(node.this), "number")
    if isinstance(inner, Unsupported):
        return inner
    return Placement(Expr.of(exp.Neg(this=exp.Paren(this=inner.expr.node))), inner.wire, inner.type)


def _cast(placer: OperandPlacer, node: exp.Expression, use: Use) -> Placement | Unsupported:
    """Place a cast of an integer to numeric, or of any type to itself: Spark computes no other cast
    exactly.
    """
    types = collect(map(placer.type_of, (node.this, node)))
    if isinstance(types, Unsupported):
        return types
    if types[0] == types[1]:
        return placer.place(Expr.of(node.this), use)
    if refusal := _refusal_of_shown(placer, node, use):
        return refusal
    to = node.args["to"]
    inner = placer.place(Expr.of(node.this), "number")
    if isinstance(inner, Unsupported):
        return inner
    if not (isinstance(to, exp.DataType) and to.this == exp.DType.DECIMAL and not to.expressions):
        return refuse_across_tables(Expr.of(node))
    if inner.wire.number == "decimal":
        return Placement(inner.expr, inner.wire, None)
    digits, _ = digits_of_wire(inner.wire, inner.type)
    wire = Wire("string", f"decimal({digits},0)", equal=True, ordered=True, number="decimal")
    made = exp.cast(inner.expr.node, f"decimal({digits}, 0)")
    return Placement(Expr.of(made), wire, None)


def _case(placer: OperandPlacer, node: exp.Expression, use: Use) -> Placement | Unsupported:
    assert isinstance(node, exp.Case)
    if node.this is not None:
        return refuse_across_tables(Expr.of(node), "Write it as CASE WHEN x = 1 THEN ...")
    results = [branch.args["true"] for branch in node.args["ifs"]]
    default = node.args.get("default")
    values = results + ([default] if default is not None else [])
    found = _alternatives(placer, node, values, use)
    if isinstance(found, Unsupported):
        return found
    conditions = collect(placer.place(Expr.of(branch.this), "carry") for branch in node.args["ifs"])
    if isinstance(conditions, Unsupported):
        return conditions
    made = exp.Case(
        ifs=[
            exp.If(this=condition.expr.node, true=value)
            for condition, value in zip(conditions, found.nodes, strict=False)
        ],
        default=found.nodes[-1] if default is not None else None,
    )
    return Placement(Expr.of(made), found.wire, found.type)


def _coalesce(placer: OperandPlacer, node: exp.Expression, use: Use) -> Placement | Unsupported:
    found = _alternatives(placer, node, (node.this, *node.expressions), use)
    if isinstance(found, Unsupported):
        return found
    first, *others = found.nodes
    return Placement(Expr.of(exp.Coalesce(this=first, expressions=others)), found.wire, found.type)


@dataclass(frozen=True)
class _Alternatives:
    """The values of CASE or COALESCE, with the wire that fits all of them."""

    nodes: tuple[exp.Expr, ...]
    wire: Wire
    type: PgType


def _alternatives(
    placer: OperandPlacer, node: exp.Expression, values: Sequence[exp.Expression], use: Use
) -> _Alternatives | Unsupported:
    """Place the values of which an expression returns one."""
    use = _use_of_alternatives(placer, node, use)
    placed = collect(placer.place(Expr.of(value), use) for value in values)
    if isinstance(placed, Unsupported):
        return placed
    wire = _common(placed, node)
    if isinstance(wire, Unsupported):
        return wire
    type_ = placer.type_of(node)
    if isinstance(type_, Unsupported):
        return type_
    return _Alternatives(tuple(one.expr.node for one in placed), wire, type_)


def _use_of_alternatives(placer: OperandPlacer, node: exp.Expression, use: Use) -> Use:
    """Return the use of alternatives: char(5) and char(3) keep their blanks, because the result has
    no length.
    """
    type_ = placer.type_of(node) if use == "carry" else None
    return "printed" if isinstance(type_, PgType) and type_.base == "bpchar" else use


def _common(placed: list[Placement], node: exp.Expression) -> Wire | Unsupported:
    """Return the wire that fits all alternatives; the refusal if there is none."""
    if len({one.wire for one in placed}) == 1:
        return placed[0].wire
    # Texts of different collations travel the same way; only their order may differ.
    unordered = {replace(one.wire, ordered=False) for one in placed}
    if len(unordered) == 1:
        return unordered.pop()
    if all(one.wire.number in ("int", "decimal") for one in placed):
        return common_decimal([digits_of_wire(one.wire, one.type) for one in placed])
    return refuse_across_tables(
        Expr.of(node), "Its alternatives have different representations in Spark."
    )


def _is(placer: OperandPlacer, node: exp.Expression, use: Use) -> Placement | Unsupported:
    """Place IS NULL, IS TRUE or IS FALSE."""
    wanted = unwrapped(node.expression)
    if not isinstance(wanted, exp.Null | exp.Boolean):
        return refuse_across_tables(Expr.of(node))
    inner = _inner_of_is(placer, Expr.of(unwrapped(node.this)))
    if isinstance(inner, Unsupported):
        return inner
    # sqlglot keeps the NOT of IS NOT NULL inside the node.
    node.set("this", exp.Paren(this=inner.node))
    return Placement(Expr.of(node), wire_of(BOOL), BOOL)


def _inner_of_is(placer: OperandPlacer, expression: Expr) -> Expr | Unsupported:
    """Return what is asked about; of a number across tables, true where it is not NULL."""
    if (
        not placer.is_over_one_table(expression)
        and _is_number(expression)
        and _numeric(placer, expression)
    ):
        tried = Attempts(placer, lenient=True).of(expression.node)
        if isinstance(tried, Attempt):
            return Expr.parse(f"CASE WHEN {tried.present} THEN TRUE END")
    placed = placer.place(expression, "carry")
    return placed if isinstance(placed, Unsupported) else placed.expr


def _is_number(expression: Expr) -> bool:
    """True if an expression computes a number, chooses one, or is a column that does."""
    kinds = (exp.Column, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Cast, exp.Case, exp.Coalesce)
    return isinstance(unwrapped(expression.tree), kinds)


SPARK_EXACT: dict[type[exp.Expression], Rule] = {
    exp.And: _logical, exp.Or: _logical, exp.Not: _logical, exp.Is: _is,
    exp.EQ: _comparison, exp.NEQ: _comparison, exp.GT: _comparison, exp.GTE: _comparison,
    exp.LT: _comparison, exp.LTE: _comparison, exp.NullSafeEQ: _comparison, exp.NullSafeNEQ: _comparison,
    exp.Add: _arithmetic, exp.Sub: _arithmetic, exp.Mul: _arithmetic, exp.Neg: _negative,
    exp.Cast: _cast, exp.Case: _case, exp.Coalesce: _coalesce,
}  # fmt: skip
