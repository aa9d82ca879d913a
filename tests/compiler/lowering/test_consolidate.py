"""Consolidating changes: rows that cancel are dropped."""

from __future__ import annotations

from tests.compiler.lowering.conftest import steps_of

from millstream.algebra.block import BlockColumn
from millstream.algebra.wire import wire_of
from millstream.compiler.lowering.consolidate import (
    consolidate_rows,
    consolidate_select,
    difference_rows,
)
from millstream.compiler.lowering.context import Lowering
from millstream.testing.planning_server import pg_type


def column(name: str, type_: str) -> BlockColumn:
    return BlockColumn(name, pg_type(type_), wire_of(pg_type(type_)))


def test_equal_rows_are_summed_and_a_net_of_zero_is_dropped() -> None:
    assert consolidate_select("rows", [column("x0", "int4")]) == (
        "SELECT x0, SUM(__after - __before) AS __net FROM rows GROUP BY x0 HAVING SUM(__after - __before) <> 0"
    )


def test_zeros_of_different_sign_are_grouped_by_their_text() -> None:
    select = consolidate_select("rows", [column("x0", "float8")])
    assert "FIRST(x0) AS x0" in select
    assert "GROUP BY CAST(x0 AS STRING)" in select


def test_without_columns_all_rows_are_one_group() -> None:
    assert "GROUP BY" not in consolidate_select("rows", [])


def test_where_sums_follow_equal_rows_are_not_merged(ctx: Lowering) -> None:
    difference_rows("rows", [column("x0", "int4")], ctx)
    assert steps_of(ctx)["weighed"] == "SELECT x0, __after - __before AS __net FROM rows"
    consolidate_rows("rows", [column("x0", "int4")], ctx)
    assert "GROUP BY" in steps_of(ctx)["consolidated"]
