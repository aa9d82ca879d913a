"""Maintain count(DISTINCT x) by a block that stores each x of a group once.

SELECT k, sum(y), count(DISTINCT x) GROUP BY k
    Aggregate by k: sum(v0), count(v1)
      UnionAll
        the rows:                       k, y AS v0, NULL AS v1
        Aggregate by k, x (a block):    k, NULL AS v0, x AS v1

Aggregates ignore the NULLs of the other part, and a group exists in one part exactly if it exists
in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.expr import Expr, unwrapped
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Filter,
    Measure,
    Named,
    Project,
    Relation,
    UnionAll,
)
from millstream.algebra.types import PgType
from millstream.compiler.blocks.flatten import flatten
from millstream.compiler.blocks.region import BranchNames
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import Unsupported

_INTEGERS = frozenset({"int2", "int4", "int8"})


@dataclass(frozen=True)
class _DistinctCall:
    """An aggregate over distinct values, taken apart."""

    function: str
    value: Expr
    filter: Expr | None


def has_distinct(aggregate: Aggregate) -> bool:
    """True if some aggregate is over distinct values and may be maintained this way."""
    return any(is_over_distinct_values(measure.call) for measure in aggregate.measures)


def is_over_distinct_values(call: Call) -> bool:
    """True for count, sum or avg of the distinct values of one expression."""
    return _distinct_call(call) is not None


def split_distinct_counts(
    aggregate: Aggregate,
    keep: Callable[[Aggregate], Relation | Unsupported],
    server: PlanningServer,
) -> Aggregate | Unsupported:
    """Return the aggregate over the union of its rows and the distinct values; the refusal if it
    must stay holistic.

    `keep` adds the block that stores distinct values, and returns a scan of it, or its refusal.
    """
    calls = [_distinct_call(measure.call) or measure.call for measure in aggregate.measures]
    values = [call.value if isinstance(call, _DistinctCall) else _value(call) for call in calls]
    types = _types([*(key.expr for key in aggregate.keys), *values], aggregate.input, server)
    if isinstance(types, Unsupported):
        return types
    for measure, call, type_ in zip(
        aggregate.measures, calls, types[len(aggregate.keys) :], strict=True
    ):
        if not _is_maintained(call, type_):
            return _beside_holistic(measure)
    sets = list(
        dict.fromkeys(
            (call.value, call.filter) for call in calls if isinstance(call, _DistinctCall)
        )
    )
    places = [
        sets.index((call.value, call.filter)) if isinstance(call, _DistinctCall) else None
        for call in calls
    ]
    parts = list[Relation]()
    # If a FILTER discards all values of a group, only its rows show that the group exists.
    if None in places or all(where for _, where in sets):
        shown = [
            value if place is None else None for value, place in zip(values, places, strict=True)
        ]
        parts.append(
            _part(
                aggregate.input,
                [key.expr for key in aggregate.keys],
                shown,
                types,
                f"{aggregate.alias}_r",
            )
        )
    for number, (value, where) in enumerate(sets):
        distinct = keep(_distinct_values(aggregate, value, where, f"{aggregate.alias}_d{number}"))
        if isinstance(distinct, Unsupported):
            return distinct
        *keys, own = [Expr(ref.sql) for ref in distinct.columns]
        shown = [own if place == number else None for place in places]
        parts.append(_part(distinct, keys, shown, types, f"{aggregate.alias}_p{number}"))
    names = tuple(f"k{n}" for n in range(len(aggregate.keys))) + tuple(
        f"v{n}" for n in range(len(calls))
    )
    return _regrouped(
        aggregate, UnionAll(tuple(parts), names, types, f"{aggregate.alias}_u"), calls
    )


def _beside_holistic(measure: Measure) -> Unsupported:
    """Return the refusal of distinct values beside a measure that is computed over all rows of a
    group anyway.
    """
    return Unsupported.construct(
        f"a block of distinct values beside {measure.call}",
        reason="It is not maintained by sums, so all rows of a group are stored and read anyway.",
        way_round="Compute it in a stream table of its own.",
    )


def _regrouped(
    aggregate: Aggregate, union: UnionAll, calls: Sequence[_DistinctCall | Call]
) -> Aggregate:
    keys = tuple(
        Named(key.name, Expr.ref(union.alias, f"k{n}")) for n, key in enumerate(aggregate.keys)
    )
    measures = tuple(
        Measure(one.name, Call(call.function, Expr.ref(union.alias, f"v{n}")))
        for n, (one, call) in enumerate(zip(aggregate.measures, calls, strict=True))
    )
    return Aggregate(union, keys, measures, aggregate.alias)


def _distinct_values(
    aggregate: Aggregate, value: Expr, where: Expr | None, alias: str
) -> Aggregate:
    rows = Filter(aggregate.input, where) if where else aggregate.input
    return Aggregate(rows, (*aggregate.keys, Named("value", value)), (), alias)


def _part(
    rows: Relation,
    keys: Sequence[Expr],
    values: Sequence[Expr | None],
    types: Sequence[PgType],
    alias: str,
) -> Project:
    """Return one part of the union; values of other parts are NULL."""
    named = [Named(f"k{n}", key) for n, key in enumerate(keys)]
    for n, (value, type_) in enumerate(zip(values, types[len(keys) :], strict=True)):
        named.append(Named(f"v{n}", value or Expr.parse(f"CAST(NULL AS {type_.name})")))
    return Project(rows, tuple(named), alias)


def _value(call: Call) -> Expr:
    """Return the argument of a plain aggregate, NULL where its FILTER is not true."""
    value = call.argument or Expr("1")
    return Expr.parse(f"CASE WHEN {call.filter.sql} THEN {value.sql} END") if call.filter else value


def _distinct_call(call: Call) -> _DistinctCall | None:
    """Return count(DISTINCT x) FILTER (WHERE p) taken apart; None for any other call."""
    node = call.text.node if call.text else None
    where = Expr.of(unwrapped(node.expression.this)) if isinstance(node, exp.Filter) else None
    inner = node.this if isinstance(node, exp.Filter) else node
    if not isinstance(inner, exp.Count | exp.Sum | exp.Avg) or not isinstance(
        inner.this, exp.Distinct
    ):
        return None
    if len(inner.this.expressions) != 1 or inner.expressions:
        return None
    return _DistinctCall(call.function, Expr.of(unwrapped(inner.this.expressions[0])), where)


def _is_maintained(call: _DistinctCall | Call, type_: PgType) -> bool:
    """True if a call is maintained by sums whose scale the type declares."""
    if isinstance(call, Call) and call.text is not None:
        return False
    if call.function == "count":
        return True
    return type_.base in _INTEGERS or (type_.base == "numeric" and type_.scale is not None)


def _types(
    expressions: Sequence[Expr], rows: Relation, server: PlanningServer
) -> tuple[PgType, ...] | Unsupported:
    flat = flatten(rows)[0]
    branch_names = BranchNames(flat.region)
    marks = {ref: Expr("(true)") for ref in branch_names.marks}
    over = [
        branch_names.expanded(flat.over(expression)).substitute(marks) for expression in expressions
    ]
    return server.types(over, list(branch_names.scans.values()))
