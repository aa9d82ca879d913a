"""Temporal filters: a condition over a table's row and single rows."""

from __future__ import annotations

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Scan
from millstream.algebra.temporal_filter import TemporalFilter
from millstream.testing.planning_server import single_row

AVERAGE = Scan(single_row("average", "low int4, high int4"), "s")
BETWEEN = TemporalFilter(
    Expr.parse('"o"."amount" > "s"."low" AND "o"."amount" < "s"."high"'), (AVERAGE,)
)


def test_the_columns_of_each_alias_are_found_once_and_in_order() -> None:
    assert BETWEEN.over("s") == [Ref("s", "high"), Ref("s", "low")]
    assert BETWEEN.over("o") == [Ref("o", "amount")]
    assert BETWEEN.over("x") == []


def test_it_prints_the_single_rows_it_compares_with() -> None:
    assert str(BETWEEN).endswith("by block 0 AS s")
