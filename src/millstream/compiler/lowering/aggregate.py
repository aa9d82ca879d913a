"""Lower the aggregate head: per group, what its state gains.

    rows, present, reaching, total    sums weighted by net = after - before: PostgreSQL adds them to the state
    special                           the same of NaN and the infinities, each counted
    beyond                            numbers that Spark has no type for: a list, in JSON, of each and its net
    min, max                          the best value that came (`_in`) and the best that went (`_out`)

With `before` 0 everywhere (a full read) the same columns are the state itself. An extreme whose
order Spark does not share with PostgreSQL travels as the set of its candidates, in JSON.

    rows of a group, net     (10, +1) (7, -1)
    rows 0   total 3   min_in 10   min_out 7      the stored min is 7: the group is read again
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.algebra.block import Accumulator, AggregateHead, BlockColumn
from millstream.algebra.wire import SPECIAL, is_in_parts
from millstream.compiler.lowering.consolidate import consolidate_rows, difference_rows
from millstream.compiler.lowering.context import NET, Lowering

# What PostgreSQL says of a sum that becomes infinite, though nothing that is added is.
OVERFLOW = "value out of range: overflow"


def aggregate(step: str, head: AggregateHead, columns: tuple[BlockColumn, ...], ctx: Lowering) -> str:
    """The last SELECT: one row per touched group."""
    source = consolidate_rows(step, columns, ctx) if head.consolidated else difference_rows(step, columns, ctx)
    keys = [key.name for key in head.keys]
    values = [value for one in head.accumulators for value in _RULES[one.function](one)]
    select = f"SELECT {', '.join(keys + values)} FROM {source}"
    if keys:
        select += f" GROUP BY {', '.join(keys)}"
    if not head.consolidated:
        select += f" HAVING {' OR '.join(_touched(one) for one in head.accumulators)}"
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
    """The weighted sums of the whole numbers of a column, and of the rest."""
    assert one.wire is not None
    value, net = f"CAST({one.column} AS {one.wire.spark})", f"CAST({NET} AS DECIMAL(19,0))"
    whole = f"CAST(FLOOR({value}) AS DECIMAL(38,0))"
    return f"COALESCE(SUM({whole} * {net}), 0)", f"COALESCE(SUM(({value} - FLOOR({value})) * {net}), 0)"


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
    """The weighted sum of a column; of nothing, 0."""
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
        # Spark adds to 0, and so makes 0 of a sum of nothing but -0.
        plain = f"CASE WHEN CAST({one.column} AS STRING) <> '-0.0' THEN 1 WHEN {one.column} IS NOT NULL THEN 0 END"
        total = f"COALESCE(SUM(CAST({one.column} AS DOUBLE) * {NET}), 0)"
        unbounded = f"MAX(CASE WHEN {_unbounded(one.column)} THEN 1 ELSE 0 END)"
        return (
            f"CASE WHEN MAX({plain}) = 0 THEN CAST('-0.0' AS DOUBLE)"
            f" WHEN {_unbounded(total)} AND {unbounded} = 0 THEN RAISE_ERROR('{OVERFLOW}') ELSE {total} END"
        )
    assert one.wire is not None
    return f"COALESCE(SUM(CAST({one.column} AS {one.wire.spark}) * CAST({NET} AS DECIMAL(19,0))), 0)"


def _unbounded(value: str | None) -> str:
    return f"ABS({value}) = CAST('Infinity' AS DOUBLE)"


def _touched(one: Accumulator) -> str:
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
