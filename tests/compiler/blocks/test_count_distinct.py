"""count(DISTINCT x) over a block that stores each x once."""

from __future__ import annotations

import pytest

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Aggregate, Call, Measure, Named, Scan, UnionAll
from millstream.compiler.blocks.count_distinct import has_distinct, split_distinct_counts
from millstream.errors import Unsupported
from millstream.testing.planning_server import PlanningServerDouble, table

T = Scan(table("t", "k int4, x int4, f float8"), "t")


def grouped(*calls: Call) -> Aggregate:
    measures = tuple(Measure(f"m{number}", call) for number, call in enumerate(calls))
    return Aggregate(T, (Named("k0", Expr.ref("t", "k")),), measures, "g")


def distinct(function: str, column: str = "x", where: str = "") -> Call:
    return Call(function, None, None, Expr.parse(f'{function}(DISTINCT "t"."{column}"){where}'))


def split(aggregate: Aggregate) -> tuple[Aggregate | Unsupported, list[Aggregate]]:
    kept = list[Aggregate]()

    def keep(values: Aggregate) -> Aggregate:
        kept.append(values)
        return values

    return split_distinct_counts(aggregate, keep, PlanningServerDouble()), kept


def test_only_distinct_of_one_argument_is_recognized() -> None:
    assert has_distinct(grouped(distinct("count")))
    assert not has_distinct(grouped(Call("count", Expr.ref("t", "x"))))
    assert not has_distinct(grouped(Call("max", None, None, Expr.parse('max(DISTINCT "t"."x")'))))


def test_distinct_values_are_grouped_by_the_keys_and_counted_beside_the_rows() -> None:
    result, kept = split(grouped(distinct("count"), Call("sum", Expr.ref("t", "x"))))
    assert isinstance(result, Aggregate)
    assert isinstance(result.input, UnionAll)
    assert len(result.input.parts) == 2
    assert [[key.name for key in values.keys] for values in kept] == [["k0", "value"]]
    assert [str(measure) for measure in result.measures] == [
        'count("g_u"."v0") AS m0',
        'sum("g_u"."v1") AS m1',
    ]


def test_without_other_aggregates_the_rows_are_not_read() -> None:
    result, _ = split(grouped(distinct("count")))
    assert isinstance(result, Aggregate)
    assert isinstance(result.input, UnionAll)
    assert len(result.input.parts) == 1


def test_aggregates_of_the_same_values_share_a_block() -> None:
    _, kept = split(grouped(distinct("count"), distinct("sum")))
    assert len(kept) == 1


def test_a_filter_needs_the_rows_to_show_that_a_group_exists() -> None:
    result, _ = split(grouped(distinct("count", where=' FILTER (WHERE "t"."x" > 1)')))
    assert isinstance(result, Aggregate)
    assert isinstance(result.input, UnionAll)
    assert len(result.input.parts) == 2


@pytest.mark.parametrize("function", ["sum", "avg"])
def test_a_sum_of_floats_stays_holistic(function: str) -> None:
    refusal, kept = split(grouped(distinct(function, "f")))
    assert isinstance(refusal, Unsupported)
    assert "not maintained by sums" in refusal.detail
    assert kept == []
