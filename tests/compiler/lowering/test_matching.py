"""Counting the matches of each row of one side."""

from __future__ import annotations

from tests.compiler.lowering.conftest import join_of, steps_of

from millstream.algebra.expr import Expr
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.matching import count_matches, on, sides


def test_an_equality_may_name_the_sides_in_either_order(ctx: Lowering) -> None:
    left, right = sides(join_of("left"), ctx)
    assert (left.ends, right.ends, left.signs) == (["i0_c0"], ["i1_c0"], ["="])


def test_by_equalities_alone_the_other_side_is_summed_once_per_key(ctx: Lowering) -> None:
    count_matches(*sides(join_of("left"), ctx), (), ctx)
    steps = steps_of(ctx)
    assert steps["counts"].endswith("GROUP BY i1_c0")
    assert "COALESCE(k.__was, 0) AS __was" in steps["counted"]


def test_with_a_residual_condition_each_row_sums_its_own_pairs(ctx: Lowering) -> None:
    count_matches(*sides(join_of("left"), ctx), (Expr.parse('"i0"."c1" > "i1"."c1"'),), ctx)
    steps = steps_of(ctx)
    assert "counts" not in steps
    assert "AND (i0_c1 > i1_c1)" in steps["counted"]
    assert steps["counted"].endswith("GROUP BY l.__nth")


def test_a_residual_condition_stands_in_parentheses(ctx: Lowering) -> None:
    assert (
        on(join_of("inner", '"i0"."c1" > 1 OR "i1"."c1" > 1'), ctx)
        == "i1_c0 = i0_c0 AND (i0_c1 > 1 OR i1_c1 > 1)"
    )
