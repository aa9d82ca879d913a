"""Try a number across tables as a decimal of Spark, with its operands beside it for the rows that have none.

    t.n + u.q       value      TRY_ADD(i0_c0, i1_c0)       NULL if an operand is, or if Spark has no number for it
                    present    i0_c0 IS NOT NULL OR ...    true if no operand is NULL
                    postfix    ['1e200', '-0.5', '+']      the operands as texts, each operator after its operands

Spark has no number for NaN, an infinity, and more digits than its decimals have. It then compares by the operands, by
each digit (see `spark/numbers.py`); of a sum, PostgreSQL computes the value from them.

    COALESCE(value > 5, CASE WHEN present THEN EXACT(MILLSTREAM_COMPARE(postfix, ['5']) > 0) END)

`+`, `-`, `*` of numbers, `CASE`, `COALESCE` and casts to numeric are tried. Integers among themselves stay integers:
to leave their range is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.algebra.block import Use
from millstream.algebra.expr import Expr, unwrapped
from millstream.algebra.types import PgType
from millstream.algebra.wire import Wire, number_wire_of
from millstream.compiler.placement.decimals.result import (
    common_decimal,
    decimal_of,
    digits_of_wire,
    refuse_digits,
    result_wire,
)
from millstream.compiler.placement.placement import Placement
from millstream.errors import Unsupported
from millstream.spark.numbers import COMPARE

if TYPE_CHECKING:
    from millstream.compiler.placement.spark_exact import OperandPlacer

EXACT = "MILLSTREAM_EXACT"
"""Around a condition that is needed only if a row has a number that Spark has not."""

_TRIED: dict[type[exp.Expression], str] = {exp.Add: "TRY_ADD", exp.Sub: "TRY_SUBTRACT", exp.Mul: "TRY_MULTIPLY"}
_SIGNS: dict[type[exp.Expression], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_NO_DIGITS = Wire("string", "decimal(38,0)", number="decimal")


class _NotTried(Exception):
    """Raised for an expression that is not made of operators over numbers, or with the refusal of a part of it."""

    def __init__(self, refusal: Unsupported | None = None) -> None:
        super().__init__(refusal)
        self.refusal = refusal


@dataclass(frozen=True)
class Attempt:
    """A number as Spark computes it, and as its operands."""

    value: str
    wire: Wire
    type: PgType | None
    """None for a numeric that Spark computes."""
    present: str
    postfix: tuple[str, ...]
    """Arrays of texts, one after the other."""
    written: str
    """PostgreSQL's expression; in it, `{p}` stands for the JSON object of the operands."""
    certain: bool = True
    """False if Spark has no decimal for any row."""

    @property
    def is_integer(self) -> bool:
        return self.wire.number == "int"

    @property
    def array(self) -> str:
        """The operands and operators as one array."""
        return f"CONCAT({', '.join(self.postfix)})" if len(self.postfix) > 1 else self.postfix[0]


@dataclass
class Attempts:
    """Tries the expressions of one value, and collects their operands for PostgreSQL."""

    placer: OperandPlacer
    lenient: bool = False
    """Try a product of too many digits too: it is compared by its operands in every row."""
    operands: list[str] = field(default_factory=list)

    def of(self, node: exp.Expression) -> Attempt | Unsupported | None:
        """Try an expression; None if it is not made of operators over numbers."""
        try:
            return self._of(node)
        except _NotTried as error:
            return error.refusal

    def _of(self, node: exp.Expression) -> Attempt:
        node = unwrapped(node)
        expression = Expr.of(node)
        if self.placer.is_over_one_table(expression):
            return self._operand(expression)
        if isinstance(node, exp.Cast) and _is_plain_numeric(node):
            return self._cast(node)
        if not _has_numeric(self.placer, expression):
            return self._operand(expression)
        if (ref := expression.as_ref) is not None:
            with self.placer.within(ref) as definition:
                found = self._of(definition.node)
            return _guarded(found, f"{self.placer.marker(ref)} IS NOT NULL")
        if isinstance(node, exp.Neg):
            return self._negative(node)
        if isinstance(node, exp.Case) and node.this is None:
            return self._case(node)
        if isinstance(node, exp.Coalesce):
            return self._coalesce(node)
        if type(node) not in _TRIED:
            raise _NotTried
        first, *operators = self.placer.chain(node)
        found = self._of(first)
        for operator in operators:
            found = self._operator(operator, found, self._of(operator.expression))
        return found

    # -- operands ----------------------------------------------------------------------------

    def _operand(self, expression: Expr) -> Attempt:
        type_ = self.placer.types[expression] if self.placer.is_over_one_table(expression) else None
        if type_ is not None and type_.base == "numeric" and type_.kind == "base":
            return self._numeric(expression, type_)
        if type_ is not None and (wire := number_wire_of(type_)) is not None and wire.number != "int":
            raise _NotTried
        placed = self._placed(expression, "number")
        if placed.wire.number != "int" or placed.type is None:
            raise _NotTried
        value_sql = placed.expr.sql
        return self._noted(
            Attempt(value_sql, placed.wire, placed.type, f"({value_sql}) IS NOT NULL", (), ""), value_sql
        )

    def _placed(self, expression: Expr, use: Use) -> Placement:
        placed = self.placer.place(expression, use)
        if isinstance(placed, Unsupported):
            raise _NotTried(placed)
        return placed

    def _numeric(self, expression: Expr, type_: PgType) -> Attempt:
        placed = self._placed(expression, "tried")
        value, beyond = placed.expr.sql, self._placed(expression, "untried").expr.sql
        present = f"(({value}) IS NOT NULL OR ({beyond}) IS NOT NULL)"
        certain = number_wire_of(type_) is not None
        attempt = Attempt(value, placed.wire, type_, present, (), "", certain)
        return self._noted(attempt, f"COALESCE({beyond}, CAST({value} AS TEXT))")

    def _noted(self, attempt: Attempt, text: str) -> Attempt:
        assert attempt.type is not None
        name = attempt.type.name if attempt.type.base != "numeric" else "numeric"
        return replace(
            attempt, postfix=(f"ARRAY[CAST({text} AS TEXT)]",), written=f"{self._parameter(text)}::{name}"
        )  # fmt: skip

    def _parameter(self, text: str) -> str:
        self.operands.append(f"CAST({text} AS TEXT)")
        return f"({{p}} ->> 'p{len(self.operands) - 1}')"

    # -- operators ---------------------------------------------------------------------------

    def _operator(self, node: exp.Expression, left: Attempt, right: Attempt) -> Attempt:
        sign, tried = _SIGNS[type(node)], _TRIED[type(node)]
        postfix = (*left.postfix, *right.postfix, f"ARRAY['{sign}']")
        present, written = f"{left.present} AND {right.present}", f"({left.written} {sign} {right.written})"
        if left.is_integer and right.is_integer:
            travels = result_wire(node, (left.wire, left.type), (right.wire, right.type))
            assert not isinstance(travels, Unsupported)
            return Attempt(f"(({left.value}) {sign} ({right.value}))", *travels, present, postfix, written)
        digits = (digits_of_wire(one.wire, one.type) for one in (left, right))
        wire_or_none, certain = decimal_of(node, *digits), left.certain and right.certain
        if wire_or_none is not None and certain:
            value = f"{tried}({left.value}, {right.value})"
            return Attempt(value, wire_or_none, None, present, postfix, written)
        if not self.lenient:
            raise _NotTried(refuse_digits(node))
        return Attempt("CAST(NULL AS DECIMAL(38, 0))", _NO_DIGITS, None, present, postfix, written, certain=False)

    def _negative(self, node: exp.Neg) -> Attempt:
        inner = self._of(node.this)
        value = f"(- ({inner.value}))" if inner.is_integer else f"TRY_SUBTRACT(0, {inner.value})"
        postfix = ("ARRAY['0']", *inner.postfix, "ARRAY['-']")
        return replace(inner, value=value, postfix=postfix, written=f"(- {inner.written})")

    def _cast(self, node: exp.Cast) -> Attempt:
        inner = self._of(node.this)
        if not inner.is_integer:
            return inner
        wire = decimal_of(exp.Add(), *[digits_of_wire(inner.wire, inner.type)] * 2)
        assert wire is not None
        value = f"CAST({inner.value} AS {wire.spark})"
        return replace(inner, value=value, wire=wire, type=None, written=f"({inner.written})::numeric")

    # -- alternatives ------------------------------------------------------------------------

    def _case(self, node: exp.Case) -> Attempt:
        conditions = [self._placed(Expr.of(branch.this), "carry").expr.sql for branch in node.args["ifs"]]
        default = node.args.get("default")
        values = [branch.args["true"] for branch in node.args["ifs"]] + ([default] if default is not None else [])
        written, found = list[str](), list[Attempt | None]()
        for place, condition in enumerate(conditions):
            with self._unless(conditions[:place]):
                written.append(f"({self._parameter(condition)})::boolean")
        for place, value in enumerate(values):
            with self._unless(conditions[:place], *conditions[place : place + 1]):
                found.append(self._alternative(value))
        return _united(found, conditions, written)

    def _coalesce(self, node: exp.Coalesce) -> Attempt:
        found = list[Attempt | None]()
        for value in (node.this, *node.expressions):
            with self._unless([one.present for one in found if one]):
                found.append(self._alternative(value))
        present = [one.present if one else "FALSE" for one in found[:-1]]
        written = [f"({one.written}) IS NOT NULL" if one else "false" for one in found[:-1]]
        return _united(found, present, written)

    def _alternative(self, value: exp.Expression) -> Attempt | None:
        return self._of(value) if not _is_null(value) else None

    @contextmanager
    def _unless(self, others: Sequence[str], wanted: str = "TRUE") -> Iterator[None]:
        """Evaluate the operands that are added only where PostgreSQL does: no other condition holds, and this one does.

        An operand may raise an error.
        """
        first = len(self.operands)
        yield
        whens = " ".join([*(f"WHEN {other} THEN NULL" for other in others), f"WHEN {wanted} THEN"])
        if others or wanted != "TRUE":
            self.operands[first:] = [f"CASE {whens} {operand} END" for operand in self.operands[first:]]


def _has_numeric(placer: OperandPlacer, expression: Expr) -> bool:
    return any(placer.types[part].base == "numeric" for part in placer.parts(expression))


def _is_plain_numeric(node: exp.Cast) -> bool:
    """True if a cast is to numeric, without digits."""
    to = node.args["to"]
    return isinstance(to, exp.DataType) and to.this == exp.DType.DECIMAL and not to.expressions


def _is_null(node: exp.Expression) -> bool:
    node = unwrapped(node)
    return isinstance(node, exp.Null) or (isinstance(node, exp.Cast) and _is_null(node.this))


def _guarded(found: Attempt, condition: str) -> Attempt:
    """Return a number that is NULL unless a condition of Spark holds."""
    value, array = (f"CASE WHEN {condition} THEN {text} END" for text in (found.value, found.array))
    return replace(found, value=value, postfix=(array,), present=f"({condition} AND {found.present})")


def _united(found: Sequence[Attempt | None], conditions: Sequence[str], written: Sequence[str]) -> Attempt:
    """Return the alternative of the first condition that holds; None stands for NULL."""
    known = [one for one in found if one is not None]
    if not known:
        raise _NotTried
    wire, type_ = known[0].wire, known[0].type
    texts: Mapping[int, str] = {id(one): one.value for one in known}
    if any(one.wire.spark != wire.spark or one.wire.scale != wire.scale for one in known):
        common = common_decimal([digits_of_wire(one.wire, one.type) for one in known])
        widened = decimal_of(exp.Add(), *[digits_of_wire(common, None)] * 2)
        if widened is None:
            raise _NotTried
        # TRY_CAST would do; the printer of PostgreSQL's SQL has no such word.
        texts = {id(one): f"TRY_ADD({one.value}, CAST(0 AS {common.spark}))" for one in known}
        wire, type_ = widened, None

    def of(texts: Sequence[str], nothing: str, conditions: Sequence[str]) -> str:
        whens = " ".join(f"WHEN {one} THEN {text}" for one, text in zip(conditions, texts, strict=False))
        last = texts[-1] if len(texts) > len(conditions) else nothing
        return f"CASE {whens} ELSE {last} END"

    return Attempt(
        of([texts[id(one)] if one else "NULL" for one in found], "NULL", conditions),
        wire,
        type_,
        f"({of([f'({one.present})' if one else 'FALSE' for one in found], 'FALSE', conditions)})",
        (of([one.array if one else "NULL" for one in found], "NULL", conditions),),
        of([one.written if one else "NULL" for one in found], "NULL", written),
        all(one.certain for one in known),
    )


def compare(operator: str, left: Attempt, right: Attempt) -> str:
    """Return Spark's comparison of two numbers by `=`, `<>`, `<`, `<=`, `>` or `>=`."""
    both = f"{left.present} AND {right.present}"
    exact = f"{COMPARE}({left.array}, {right.array}) {operator} 0"
    if not (left.certain and right.certain):
        return f"CASE WHEN {both} THEN {exact} END"
    return f"COALESCE(({left.value}) {operator} ({right.value}), CASE WHEN {both} THEN {EXACT}({exact}) END)"


def compare_null_safe(left: Attempt, right: Attempt, *, distinct: bool) -> str:
    """Return Spark's `IS DISTINCT FROM`, or its contrary, of two numbers."""
    both, one = f"{left.present} AND {right.present}", f"{left.present} OR {right.present}"
    equal = f"CASE WHEN {both} THEN {compare('=', left, right)} ELSE NOT ({one}) END"
    return f"NOT ({equal})" if distinct else equal
