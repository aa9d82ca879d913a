"""The state of a group: the accumulators of each aggregate, and the SQL that reads the aggregate
from them.

    count(*)   rows                      sum(x)   total, present: NULL unless present > 0
    count(x)   present                   avg(x)   total / present, as numeric
    min, max   the extreme itself        over floats: total recomputed, never added to

Sums are exact: Spark sends the difference of a batch as a decimal, PostgreSQL adds it in numeric.
The scale of a quotient depends on the displayed scale of its sum, the largest of its values. If the
type does not declare it, a group counts the values of scale 1 or more, 2 or more, up to FEW; a
larger scale is stored as an extreme, and the group is recomputed when the value of that scale is
deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.algebra.block import Accumulator, Function, HolisticAggregate, Strategy, Use
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Call, Measure
from millstream.algebra.table import quoted
from millstream.algebra.types import PgType
from millstream.algebra.wire import (
    BEYOND_SUM,
    COARSE,
    FINE,
    FINE_SCALE,
    SPECIAL,
    Wire,
    computed_sum,
    number_wire_of,
    sum_in_parts,
    wire_of,
)
from millstream.compiler.placement.placement import INT4, NUMERIC, Placement
from millstream.compiler.workaround import TWO_STEPS
from millstream.errors import Unsupported

# Money has two digits after the point, rates four: these are counted.
FEW = 4
# The most digits after the point that PostgreSQL's round() leaves.
ROUNDED = 2000
# The most that a numeric has; a product of two such is rounded to as many.
LONGEST = 16383

INT8 = PgType(20, "bigint", "int8")
FLOAT8 = PgType(701, "double precision", "float8")

# What PostgreSQL's sum() of each type returns.
_SUM_TYPE = {"int2": "bigint", "int4": "bigint", "int8": "numeric", "numeric": "numeric",
             "float4": "real", "float8": "double precision"}  # fmt: skip


_PREFIX: dict[Function, str] = {
    "rows": "n", "present": "c", "reaching": "r", "total": "t", "special": "e", "beyond": "b", "min": "x", "max": "x",
}  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """A column of the body that a measure needs: its expression and its use."""

    expr: Expr
    use: Use


def arguments(call: Call) -> tuple[Argument, ...]:
    """Return the columns of the body that a call needs; where a FILTER is not true, the argument is
    NULL.
    """
    if call.text is not None or (call.argument is None and call.filter is None):
        return ()
    value = call.argument or Expr("1")
    if call.filter is not None:
        value = Expr.parse(f"CASE WHEN {call.filter.sql} THEN {value.sql} END")
    if call.function == "count":
        return (Argument(Expr.parse(f"CASE WHEN ({value.sql}) IS NOT NULL THEN 1 END"), "carry"),)
    if call.function in ("min", "max"):
        return (Argument(value, "carry"),)
    return (Argument(value, "number"),)


def argument_columns(measures: Sequence[Measure]) -> dict[int, str]:
    """Return the column of the body that holds the argument of each measure that has one; equal
    arguments share it.
    """
    needs = [arguments(measure.call) for measure in measures]
    return {number: f"a{needs.index(need)}" for number, need in enumerate(needs) if need}


def refuse_extreme(function: str) -> Unsupported:
    """Return the refusal of a least or greatest value whose type only Spark knows."""
    return Unsupported.construct(
        f"{function} of an expression over several tables",
        reason="Its type is not known exactly.",
        way_round=TWO_STEPS,
    )


@dataclass(frozen=True)
class ArgumentColumns:
    """The columns of the body that hold an argument."""

    name: str
    placed: Placement
    order: str | None = None
    """The column that Spark orders by, if not the argument itself."""
    shown: str | None = None
    """The displayed scale of each value, if the type does not declare it."""
    fine: str | None = None
    """The digits that follow those of the column, if it may have more than Spark's decimals."""
    beyond: str | None = None
    """The values that Spark has no number for: NaN, the infinities, and numbers of too many digits.
    """
    expression: str | None = None
    """PostgreSQL's expression over the operands, if `beyond` holds operands."""


def recomputed_call(call: Call) -> Call:
    """Return a call as a holistic aggregate, which PostgreSQL computes over all rows of a group."""
    where = f" FILTER (WHERE {call.filter.sql})" if call.filter else ""
    return Call(
        call.function, None, None, Expr.parse(f"{call.function}({call.argument or '*'}){where}")
    )


class GroupState:
    """The accumulators of a group under construction; equal ones are shared."""

    def __init__(self) -> None:
        self.holistic: list[HolisticAggregate] = []
        self.accumulators: dict[tuple[str, str | None, int | None], Accumulator] = {}
        self._add("rows", "sum", None, INT8, wire_of(INT8))

    def read(self, call: Call, over: ArgumentColumns | None) -> str:
        """Add the accumulators of a call, and return PostgreSQL's expression for it over the state
        `s`.
        """
        if over is None:
            return "s.n0"
        if call.function == "count":
            return self._state("present", "sum", over.name, INT8, wire_of(INT8))
        if call.function in ("min", "max"):
            return self._extreme("min" if call.function == "min" else "max", over)
        return self._total(call, over)

    def add_holistic(self, expr: str) -> str:
        """Add a holistic aggregate over the rows `r` of a group, and return its column of the
        state.
        """
        known = (aggregate for aggregate in self.holistic if aggregate.expr == expr)
        aggregate = next(known, None)
        if aggregate is None:
            aggregate = HolisticAggregate(f"v{len(self.holistic)}", expr)
            self.holistic.append(aggregate)
        return f"s.{quoted(aggregate.name)}"

    def _total(self, call: Call, over: ArgumentColumns) -> str:
        """Return the expression of sum() or avg()."""
        name, placed = over.name, over.placed
        base = placed.type.base if placed.type else "numeric"
        present = self._state("present", "sum", name, INT8, wire_of(INT8))
        if placed.wire.number == "float":
            total = self._state("total", "recompute", name, FLOAT8, wire_of(FLOAT8))
        else:
            parts = placed.wire == COARSE or over.expression is not None
            added = sum_in_parts(placed.wire) if parts else _sum_wire(placed.wire)
            total = self._state("total", "sum", name, NUMERIC, added)
        if over.fine is not None and over.beyond is not None:
            fine = self._state("total", "sum", over.fine, NUMERIC, FINE)
            beyond = self._state("beyond", "sum", over.beyond, NUMERIC, BEYOND_SUM)
            total = self._shown(f"({total} + {fine} * 1e-{FINE_SCALE} + {beyond})", over)
        elif over.expression is not None and over.beyond is not None:
            total = self._shown(f"({total} + {self._computed(over, None)})", over)
        elif over.shown is not None:
            total = self.showing(total, over.shown)
        if over.expression is not None:
            total = _or_special(
                total, [self._computed(over, place) for place in range(len(SPECIAL))]
            )
        elif over.beyond is not None:
            total = self._or_special(total, over.beyond, SPECIAL if over.fine else SPECIAL[:1])
        if call.function == "sum":
            return f"CASE WHEN {present} > 0 THEN {total}::{_SUM_TYPE[base]} END"
        # PostgreSQL's sum begins with the first value, its average with 0: that of -0 is 0.
        average = (
            f"({total} + 0) / {present}"
            if placed.wire.number == "float"
            else f"{total} / {present}::numeric"
        )
        return f"CASE WHEN {present} > 0 THEN {average} END"

    def _shown(self, total: str, over: ArgumentColumns) -> str:
        """Return the sum of a number's parts, rounded to its displayed scale."""
        if over.shown is not None:
            return self.showing(total, over.shown)
        scale = over.placed.type.scale if over.placed.type else None
        return f"round({total}, {scale})" if scale is not None else total

    def _or_special(self, total: str, column: str, specials: Sequence[str]) -> str:
        return _or_special(total, [self.special(column, place) for place in range(len(specials))])

    def _computed(self, over: ArgumentColumns, place: int | None) -> str:
        """Return the sum of PostgreSQL's results over the operands; with `place`, the count of one
        special result.
        """
        assert over.beyond is not None, "operands are in a column"
        assert over.expression is not None, "operands have an expression"
        listed = ", ".join(f"'{word}'" for word in SPECIAL)
        if place is None:
            wire = computed_sum(
                over.expression, f"sum(r.x * r.n) FILTER (WHERE r.x NOT IN ({listed}))"
            )
            return self._state("beyond", "sum", over.beyond, NUMERIC, wire)
        wire = computed_sum(over.expression, f"sum(r.n) FILTER (WHERE r.x = '{SPECIAL[place]}')")
        return self._state("beyond", "sum", over.beyond, INT8, wire, level=place)

    def special(self, column: str, place: int) -> str:
        """Return the number of rows of the group with this special value."""
        return self._state("special", "sum", column, INT8, wire_of(INT8), level=place)

    def showing(self, value: str, column: str) -> str:
        """Return a number rounded to the largest displayed scale of the group's values."""
        digits = self.digits(column)
        most = self._state("max", "extreme", column, INT4, wire_of(INT4), column, level=FEW)
        # round() leaves at most 2000 digits.
        long = f"WHEN {most} > {ROUNDED} THEN trim_scale({value}) + ('0e-' || least({most}, {LONGEST}))::numeric"
        return f"CASE {long} ELSE round({value}, {digits}) END"

    def digits(self, column: str) -> str:
        """Return the largest displayed scale of the group's values, which is the scale of their
        sum.
        """
        self._state("present", "sum", column, INT8, wire_of(INT8))
        most = self._state("max", "extreme", column, INT4, wire_of(INT4), column, level=FEW)
        counts = [(digits, self.reaching(column, digits)) for digits in range(FEW, 0, -1)]
        few = " ".join(f"WHEN {count} > 0 THEN {digits}" for digits, count in counts)
        return f"CASE WHEN {most} > {FEW} THEN {most} {few} ELSE 0 END"

    def reaching(self, column: str, level: int) -> str:
        """Return the number of rows of the group whose value in a column is at least `level`."""
        return self._state("reaching", "sum", column, INT8, wire_of(INT8), level=level)

    def _extreme(self, function: Literal["min", "max"], over: ArgumentColumns) -> str:
        name, placed = over.name, over.placed
        assert placed.type is not None, "an extreme without a type is refused"
        order = name if placed.wire.ordered else over.order
        # The count of values tells when the last one is deleted: then there is nothing to
        # recompute.
        self._state("present", "sum", name, INT8, wire_of(INT8))
        return self._state(function, "extreme", name, placed.type, placed.wire, order)

    def _state(
        self,
        function: Function,
        strategy: Strategy,
        column: str,
        type_: PgType,
        wire: Wire,
        order: str | None = None,
        level: int | None = None,
    ) -> str:
        return f"s.{quoted(self._add(function, strategy, column, type_, wire, order, level).name)}"

    def _add(
        self,
        function: Function,
        strategy: Strategy,
        column: str | None,
        type_: PgType,
        wire: Wire,
        order: str | None = None,
        level: int | None = None,
    ) -> Accumulator:
        key = (function, column, level)
        if key not in self.accumulators:
            name = f"{_PREFIX[function]}{len(self.accumulators)}"
            self.accumulators[key] = Accumulator(
                name, function, strategy, column, type_, wire, order, level
            )
        return self.accumulators[key]


def _sum_wire(wire: Wire) -> Wire:
    scale = wire.scale if wire.number == "decimal" else 0
    return Wire("string", f"decimal(38,{scale})", number="decimal", scale=scale)


def order_use(type_: PgType) -> bool:
    """True if Spark orders a type by a number beside the value: a numeric itself travels as text,
    with its digits.
    """
    return type_.base == "numeric" and number_wire_of(type_) is not None


def _or_special(total: str, counts: Sequence[str]) -> str:
    """Return a sum that is NaN with a NaN or with both infinities, and infinite with one of them."""
    nan = f"{counts[0]} > 0"
    if len(counts) == 1:
        return f"CASE WHEN {nan} THEN 'NaN'::numeric ELSE {total} END"
    most, least = (f"{count} > 0" for count in counts[1:])
    return (
        f"CASE WHEN {nan} OR ({most} AND {least}) THEN 'NaN'::numeric WHEN {most} THEN 'Infinity'::numeric "
        f"WHEN {least} THEN '-Infinity'::numeric ELSE {total} END"
    )
