"""Lowering a filter."""

from __future__ import annotations

from tests.compiler.lowering.conftest import read_of, steps_of

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Filter
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.filter import filter_rows


def test_a_filter_selects_all_columns_and_multiplicities_where_it_is_true(ctx: Lowering) -> None:
    filter_rows(Filter(read_of("i0"), Expr.parse('"i0"."c0" > 1')), ctx)
    assert steps_of(ctx)["filtered"] == "SELECT * FROM i0_0 WHERE i0_c0 > 1"
