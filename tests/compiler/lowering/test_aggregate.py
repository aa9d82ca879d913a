"""Lowering the aggregate head: the change of each group's state."""

from __future__ import annotations

from millstream.algebra.block import Accumulator, AggregateHead, BlockColumn
from millstream.algebra.wire import wire_of
from millstream.compiler.lowering.aggregate import aggregate
from millstream.compiler.lowering.context import Lowering
from millstream.testing.planning_server import pg_type

INT8 = pg_type("int8")
KEY = BlockColumn("k0", INT8, wire_of(INT8))
VALUE = BlockColumn("a0", INT8, wire_of(INT8))
ROWS = Accumulator("n0", "rows", "sum", None, INT8, wire_of(INT8))
PRESENT = Accumulator("c1", "present", "sum", "a0", INT8, wire_of(INT8))


def lowered(*accumulators: Accumulator, keys: tuple[BlockColumn, ...] = (KEY,)) -> str:
    return aggregate("rows", AggregateHead(keys, accumulators), (KEY, VALUE), Lowering({}, {}))


def test_counts_are_sums_of_net_and_groups_without_a_change_are_left_out() -> None:
    statement = lowered(ROWS, PRESENT).replace("\0", "")
    assert statement.startswith("SELECT k0, COALESCE(SUM(__net), 0) AS n0, ")
    assert "FROM weighed_0 GROUP BY k0 HAVING" in statement


def test_without_keys_there_is_one_row() -> None:
    assert "GROUP BY" not in lowered(ROWS, keys=())


def test_an_extreme_has_the_best_value_that_came_and_the_best_that_went() -> None:
    statement = lowered(ROWS, Accumulator("x1", "min", "extreme", "a0", INT8, wire_of(INT8), "a0"))
    assert "MIN(CASE WHEN __net > 0 THEN a0 END) AS x1_in" in statement
    assert "MIN(CASE WHEN __net < 0 THEN a0 END) AS x1_out" in statement
    assert "HAVING" not in statement


def test_an_extreme_that_spark_cannot_order_travels_as_its_candidates() -> None:
    statement = lowered(ROWS, Accumulator("x1", "max", "extreme", "a0", INT8, wire_of(INT8)))
    assert "TO_JSON(COLLECT_SET(CASE WHEN __net > 0 THEN a0 END)) AS x1_in" in statement


def test_an_extreme_may_be_ordered_by_another_column() -> None:
    statement = lowered(ROWS, Accumulator("x1", "max", "extreme", "a0", INT8, wire_of(INT8), "a0o"))
    assert "MAX_BY(a0, CASE WHEN __net > 0 THEN a0o END) AS x1_in" in statement
