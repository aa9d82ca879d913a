"""Lower the aggregate head: compute the change of each group's state.

    rows, present, reaching, total    sums weighted by net = after - before: PostgreSQL adds them to the state
    special                           net counts of NaN and of each infinity
    beyond                            numbers that Spark has no type for: a JSON list of each number and its net
    min, max                          the best inserted value (`_in`) and the best deleted one (`_out`)

With `before` 0 everywhere (a full read) the columns are the state itself. If Spark does not order a
type as PostgreSQL does, an extreme travels as the set of its candidates, in JSON.

    rows of a group, net     (10, +1) (7, -1)
    rows 0   total 3   min_in 10   min_out 7      the stored min is 7: the group is recomputed
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.algebra.block import Accumulator, AggregateHead, BlockColumn
from millstream.algebra.wire import SPECIAL, is_in_parts
from millstream.compiler.lowering.consolidate import consolidate_rows, difference_rows
from millstream.compiler.lowering.context import NET, Lowering

# PostgreSQL's error for a sum that becomes infinite though no operand is.
OVERFLOW = "value out of range: overflow"


def aggregate(
    step: str, head: AggregateHead, columns: tuple[BlockColumn, ...], ctx: Lowering
) -> str:
    """Return the last SELECT: one row per touched group."""
    source = (
        consolidate_rows(step, columns, ctx)
        if head.consolidated
        else difference_rows(step, columns, ctx)
    )
    keys = [key.name for key in head.keys]
    values = [
        value
        for accumulator in head.accumulators
        for value in _RULES[accumulator.function](accumulator)
    ]
    select = f"SELECT {', '.join(keys + values)} FROM {source}"
    if keys:
        select += f" GROUP BY {', '.join(keys)}"
    if not head.consolidated:
        touched = " OR ".join(_is_touched(accumulator) for accumulator in head.accumulators)
        select += f" HAVING {touched}"
    return select


def _rows(one: Accumulator) -> list[str]:
    if is_in_parts(one.wire):
        whole, rest = _coarse(one)
        return [f"CONCAT(CAST({whole} AS STRING), ' ', CAST({rest} AS STRING)) AS {one.name}"]
    total = _sum(one)
    # A decimal leaves as text: PostgreSQL reads it back as numeric, digit for digit.
    exact = one.function == "total" and one.strategy == "sum"
    return [f"{f'CAST({total} AS STRING)' if exact else total} AS {one.name}"]


def _coarse(one: Accumulator) -> tuple[str, str]:
    """Return the weighted sum of the whole numbers of a column, and that of the fractions."""
    assert one.wire is not None
    value, net = f"CAST({one.column} AS {one.wire.spark})", f"CAST({NET} AS DECIMAL(19,0))"
    whole = f"CAST(FLOOR({value}) AS DECIMAL(38,0))"
    return (
        f"COALESCE(SUM({whole} * {net}), 0)",
        f"COALESCE(SUM(({value} - FLOOR({value})) * {net}), 0)",
    )


def _beyond(one: Accumulator) -> list[str]:
    pair = f"CASE WHEN {_is_beyond(one)} THEN STRUCT({one.column} AS v, {NET} AS n) END"
    return [f"TO_JSON(COLLECT_LIST({pair})) AS {one.name}"]


def _is_beyond(one: Accumulator) -> str:
    listed = ", ".join(f"'{word}'" for word in SPECIAL)
    return f"{one.column} NOT IN ({listed})"


def _extreme(one: Accumulator) -> list[str]:
    return [f"{_best(one, '> 0')} AS {one.name}_in", f"{_best(one, '< 0')} AS {one.name}_out"]


def _best(one: Accumulator, sign: str) -> str:
    value = f"CASE WHEN {NET} {sign} THEN {one.column} END"
    if one.order is None:
        return f"TO_JSON(COLLECT_SET({value}))"
    if one.order == one.column:
        return f"{one.function.upper()}({value})"
    return f"{one.function.upper()}_BY({one.column}, CASE WHEN {NET} {sign} THEN {one.order} END)"


def _sum(one: Accumulator) -> str:
    """Return the weighted sum of a column; 0 if there is no row."""
    if one.function == "rows":
        return f"COALESCE(SUM({NET}), 0)"
    if one.function == "present":
        return f"COALESCE(SUM(CASE WHEN {one.column} IS NOT NULL THEN {NET} ELSE 0 END), 0)"
    if one.function == "reaching":
        return f"COALESCE(SUM(CASE WHEN {one.column} >= {one.level} THEN {NET} ELSE 0 END), 0)"
    if one.function == "special":
        assert one.level is not None
        return f"COALESCE(SUM(CASE WHEN {one.column} = '{SPECIAL[one.level]}' THEN {NET} ELSE 0 END), 0)"
    if one.strategy == "recompute":
        # Spark begins a sum with 0, so the sum of -0 alone would be 0; PostgreSQL's is -0.
        plain = f"CASE WHEN CAST({one.column} AS STRING) <> '-0.0' THEN 1 WHEN {one.column} IS NOT NULL THEN 0 END"
        total = f"COALESCE(SUM(CAST({one.column} AS DOUBLE) * {NET}), 0)"
        unbounded = f"MAX(CASE WHEN {_unbounded(one.column)} THEN 1 ELSE 0 END)"
        return (
            f"CASE WHEN MAX({plain}) = 0 THEN CAST('-0.0' AS DOUBLE)"
            f" WHEN {_unbounded(total)} AND {unbounded} = 0 THEN RAISE_ERROR('{OVERFLOW}') ELSE {total} END"
        )
    assert one.wire is not None
    return (
        f"COALESCE(SUM(CAST({one.column} AS {one.wire.spark}) * CAST({NET} AS DECIMAL(19,0))), 0)"
    )


def _unbounded(value: str | None) -> str:
    return f"ABS({value}) = CAST('Infinity' AS DOUBLE)"


def _is_touched(one: Accumulator) -> str:
    if one.function == "beyond":
        return f"COUNT(CASE WHEN {_is_beyond(one)} THEN 1 END) > 0"
    if is_in_parts(one.wire):
        return " OR ".join(f"{total} <> 0" for total in _coarse(one))
    return f"{_sum(one)} <> 0"


_RULES: dict[str, Callable[[Accumulator], list[str]]] = {
    "rows": _rows,
    "present": _rows,
    "reaching": _rows,
    "total": _rows,
    "special": _rows,
    "beyond": _beyond,
    "min": _extreme,
    "max": _extreme,
}
