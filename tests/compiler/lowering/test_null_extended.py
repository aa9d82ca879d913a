"""Null-extending the rows of an outer join that have no match."""

from __future__ import annotations

from tests.compiler.lowering.conftest import join_of, steps_of

from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.full_join import full_join
from millstream.compiler.lowering.left_join import left_join
from millstream.compiler.lowering.null_extended import row_alone


def test_a_row_alone_counts_in_each_version_in_which_it_has_no_match() -> None:
    assert row_alone("left") == (
        "STRUCT(true, false, IF(__left_was = 0L, COALESCE(__left__before, 0L), 0L), "
        "IF(__left_is = 0L, COALESCE(__left__after, 0L), 0L))"
    )


def test_by_equalities_alone_matches_are_counted_before_the_join(ctx: Lowering) -> None:
    left_join(join_of("left"), ctx)
    assert "SUM(__before) OVER (PARTITION BY i1_c0) AS __was" in steps_of(ctx)["totalled"]


def test_with_a_residual_condition_matches_are_counted_after_the_join(ctx: Lowering) -> None:
    left_join(join_of("left", '"i0"."c1" > "i1"."c1"'), ctx)
    steps = steps_of(ctx)
    assert "totalled" not in steps
    assert "PARTITION BY __left_number" in steps["match_counts"]


def test_each_side_is_read_once(ctx: Lowering) -> None:
    full_join(join_of("full", '"i0"."c1" > "i1"."c1"'), ctx)
    statement = ctx.finish(f"SELECT * FROM {chr(0)}{ctx.steps[-1][0]}{chr(0)}", nested=True)
    assert statement.count("v0") == statement.count("v1") == 1
