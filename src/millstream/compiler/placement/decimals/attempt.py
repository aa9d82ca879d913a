"""Try numeric arithmetic over columns of several tables in Spark, and carry the operands for rows
where that fails.

`t.n + u.q` cannot be computed by PostgreSQL while it reads t or u. Spark computes it after the
join, but its decimals have no NaN, no infinities, and at most 38 digits. So an attempt has the
number, and what replaces it:

    t.n + u.q       value      TRY_ADD(i0_c0, i1_c0)       NULL if an operand is, or if Spark has no number for it
                    present    i0_c0 IS NOT NULL OR ...    true if no operand is NULL
                    postfix    ['2.5', '-0.5', '+']        the operands as texts, each operator after its operands
                    written    p0::numeric + p1::numeric   the same for PostgreSQL, over operands sent as JSON

A row in which `value` is NULL and `present` is true needs the replacement. A comparison uses
`postfix`, compared by every digit (see `spark/numbers.py`); the argument of a sum uses `written`,
which PostgreSQL computes when it decodes the sum (see `placement/arithmetic.py`):

    COALESCE(value > 5, CASE WHEN present THEN MILLSTREAM_EXACT(MILLSTREAM_COMPARE(postfix, ['5']) >
    0) END)

`+`, `-`, `*` of numbers, `CASE`, `COALESCE` and casts to numeric are tried. Integers among
themselves stay integers: if they leave their range, that is an error, as in PostgreSQL.
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
"""Marks a condition that is evaluated only for rows that need the replacement.

`lowering/context.py` removes the mark, or with `exact=False` replaces the condition by an error:
the statement is then much smaller, and is run first.
"""

_TRIED: dict[type[exp.Expression], str] = {
    exp.Add: "TRY_ADD",
    exp.Sub: "TRY_SUBTRACT",
    exp.Mul: "TRY_MULTIPLY",
}
_SIGNS: dict[type[exp.Expression], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_NO_DIGITS = Wire("string", "decimal(38,0)", number="decimal")


class _NotTried(Exception):
    """Ends an attempt: with the refusal of a part, or without one if the expression is not
    arithmetic.
    """

    def __init__(self, refusal: Unsupported | None = None) -> None:
        super().__init__(refusal)
        self.refusal = refusal


@dataclass(frozen=True)
class Attempt:
    """A number as Spark computes it, and as its operands; the header has an example of each text."""

    value: str
    wire: Wire
    type: PgType | None
    """PostgreSQL's type of an operand or an integer; None for a numeric that Spark computes."""
    present: str
    postfix: tuple[str, ...]
    """Spark's expressions of arrays of texts, to be concatenated."""
    written: str
    """PostgreSQL's expression; in it, `{p}` stands for the JSON object of the operands."""
    has_decimal: bool = True
    """False if the declared types have too many digits for a decimal of Spark: `value` is then NULL
    in every row.
    """

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
    """Accept numbers without a decimal of Spark, too: they are compared by their operands in every
    row.
    """
    operands: list[str] = field(default_factory=list)
    """Spark's expressions of the JSON object's values, `p0`, `p1`, ..."""

    def of(self, node: exp.Expression) -> Attempt | Unsupported | None:
        """Return the attempt, or the refusal of a part; None if the expression is not arithmetic."""
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
        """Return an expression that is not split: a numeric of one table, or an integer."""
        type_ = self.placer.types[expression] if self.placer.is_over_one_table(expression) else None
        if type_ is not None and type_.base == "numeric" and type_.kind == "base":
            return self._numeric(expression, type_)
        if (
            type_ is not None
            and (wire := number_wire_of(type_)) is not None
            and wire.number != "int"
        ):
            raise _NotTried
        placed = self._placed(expression, "number")
        if placed.wire.number != "int" or placed.type is None:
            raise _NotTried
        value_sql = placed.expr.sql
        attempt = Attempt(value_sql, placed.wire, placed.type, f"({value_sql}) IS NOT NULL", (), "")
        return self._with_operand(attempt, value_sql)

    def _placed(self, expression: Expr, use: Use) -> Placement:
        placed = self.placer.place(expression, use)
        if isinstance(placed, Unsupported):
            raise _NotTried(placed)
        return placed

    def _numeric(self, expression: Expr, type_: PgType) -> Attempt:
        """Return a numeric of one table: it travels in two columns, as a decimal or, where there is
        none, as text.
        """
        placed = self._placed(expression, "tried")
        value, untried = placed.expr.sql, self._placed(expression, "untried").expr.sql
        present = f"(({value}) IS NOT NULL OR ({untried}) IS NOT NULL)"
        has_decimal = number_wire_of(type_) is not None
        attempt = Attempt(value, placed.wire, type_, present, (), "", has_decimal)
        return self._with_operand(attempt, f"COALESCE({untried}, CAST({value} AS TEXT))")

    def _with_operand(self, attempt: Attempt, text: str) -> Attempt:
        """Add the operand's text to the postfix array and to the JSON object."""
        assert attempt.type is not None
        name = attempt.type.name if attempt.type.base != "numeric" else "numeric"
        return replace(
            attempt, postfix=(f"ARRAY[CAST({text} AS TEXT)]",), written=f"{self._parameter(text)}::{name}"
        )  # fmt: skip

    def _parameter(self, text: str) -> str:
        """Add a text to the JSON object, and return PostgreSQL's expression that reads it."""
        self.operands.append(f"CAST({text} AS TEXT)")
        return f"({{p}} ->> 'p{len(self.operands) - 1}')"

    # -- operators ---------------------------------------------------------------------------

    def _operator(self, node: exp.Expression, left: Attempt, right: Attempt) -> Attempt:
        sign, tried = _SIGNS[type(node)], _TRIED[type(node)]
        postfix = (*left.postfix, *right.postfix, f"ARRAY['{sign}']")
        present, written = (
            f"{left.present} AND {right.present}",
            f"({left.written} {sign} {right.written})",
        )
        if left.is_integer and right.is_integer:
            travels = result_wire(node, (left.wire, left.type), (right.wire, right.type))
            assert not isinstance(travels, Unsupported)
            return Attempt(
                f"(({left.value}) {sign} ({right.value}))", *travels, present, postfix, written
            )
        digits = (digits_of_wire(one.wire, one.type) for one in (left, right))
        wire_or_none, have_decimals = (
            decimal_of(node, *digits),
            left.has_decimal and right.has_decimal,
        )
        if wire_or_none is not None and have_decimals:
            value = f"{tried}({left.value}, {right.value})"
            return Attempt(value, wire_or_none, None, present, postfix, written)
        if not self.lenient:
            raise _NotTried(refuse_digits(node))
        return Attempt(
            "CAST(NULL AS DECIMAL(38, 0))",
            _NO_DIGITS,
            None,
            present,
            postfix,
            written,
            has_decimal=False,
        )

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
        return replace(
            inner, value=value, wire=wire, type=None, written=f"({inner.written})::numeric"
        )

    # -- alternatives ------------------------------------------------------------------------

    def _case(self, node: exp.Case) -> Attempt:
        conditions = [
            self._placed(Expr.of(branch.this), "carry").expr.sql for branch in node.args["ifs"]
        ]
        default = node.args.get("default")
        values = [branch.args["true"] for branch in node.args["ifs"]] + (
            [default] if default is not None else []
        )
        written, found = list[str](), list[Attempt | None]()
        for place, condition in enumerate(conditions):
            with self._unless(conditions[:place]):
                written.append(f"({self._parameter(condition)})::boolean")
        for place, value in enumerate(values):
            with self._unless(conditions[:place], *conditions[place : place + 1]):
                found.append(self._alternative(value))
        return _first_that_holds(found, conditions, written)

    def _coalesce(self, node: exp.Coalesce) -> Attempt:
        found = list[Attempt | None]()
        for value in (node.this, *node.expressions):
            with self._unless([one.present for one in found if one]):
                found.append(self._alternative(value))
        present = [one.present if one else "FALSE" for one in found[:-1]]
        written = [f"({one.written}) IS NOT NULL" if one else "false" for one in found[:-1]]
        return _first_that_holds(found, present, written)

    def _alternative(self, value: exp.Expression) -> Attempt | None:
        """Return the attempt of a value; None for NULL."""
        return self._of(value) if not _is_null(value) else None

    @contextmanager
    def _unless(self, others: Sequence[str], wanted: str = "TRUE") -> Iterator[None]:
        """Guard the operands that are added meanwhile: NULL if one of the `others` holds, or if
        `wanted` does not.

        PostgreSQL does not evaluate them then, and an operand may raise an error.
        """
        first = len(self.operands)
        yield
        whens = " ".join([*(f"WHEN {other} THEN NULL" for other in others), f"WHEN {wanted} THEN"])
        if others or wanted != "TRUE":
            self.operands[first:] = [
                f"CASE {whens} {operand} END" for operand in self.operands[first:]
            ]


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
    return replace(
        found, value=value, postfix=(array,), present=f"({condition} AND {found.present})"
    )


def _first_that_holds(
    found: Sequence[Attempt | None], conditions: Sequence[str], written: Sequence[str]
) -> Attempt:
    """Return the alternative of the first condition that holds, else the last one or NULL; None
    stands for NULL.

    `conditions` are for Spark, `written` the same for PostgreSQL.
    """
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
        whens = " ".join(
            f"WHEN {one} THEN {text}" for one, text in zip(conditions, texts, strict=False)
        )
        last = texts[-1] if len(texts) > len(conditions) else nothing
        return f"CASE {whens} ELSE {last} END"

    return Attempt(
        of([texts[id(one)] if one else "NULL" for one in found], "NULL", conditions),
        wire,
        type_,
        f"({of([f'({one.present})' if one else 'FALSE' for one in found], 'FALSE', conditions)})",
        (of([one.array if one else "NULL" for one in found], "NULL", conditions),),
        of([one.written if one else "NULL" for one in found], "NULL", written),
        all(one.has_decimal for one in known),
    )


def compare(operator: str, left: Attempt, right: Attempt) -> str:
    """Return Spark's comparison of two numbers by `=`, `<>`, `<`, `<=`, `>` or `>=`; NULL if one is
    not present.
    """
    both = f"{left.present} AND {right.present}"
    exact = f"{COMPARE}({left.array}, {right.array}) {operator} 0"
    if not (left.has_decimal and right.has_decimal):
        return f"CASE WHEN {both} THEN {exact} END"
    return f"COALESCE(({left.value}) {operator} ({right.value}), CASE WHEN {both} THEN {EXACT}({exact}) END)"


def compare_null_safe(left: Attempt, right: Attempt, *, distinct: bool) -> str:
    """Return Spark's `IS DISTINCT FROM` of two numbers, or `IS NOT DISTINCT FROM`."""
    both, one = f"{left.present} AND {right.present}", f"{left.present} OR {right.present}"
    equal = f"CASE WHEN {both} THEN {compare('=', left, right)} ELSE NOT ({one}) END"
    return f"NOT ({equal})" if distinct else equal
