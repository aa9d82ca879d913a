"""A left join: the pairs, and each left row without a match."""

from __future__ import annotations

from tests.compiler.lowering.conftest import join_of, steps_of

from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.left_join import left_join


def test_only_left_rows_are_null_extended(ctx: Lowering) -> None:
    left_join(join_of("left"), ctx)
    steps = steps_of(ctx)
    assert " LEFT JOIN " in steps["joined"]
    assert "STRUCT(true, false" in steps["null_extended"]
    assert "STRUCT(false, true" not in steps["null_extended"]


def test_only_right_columns_become_null(ctx: Lowering) -> None:
    left_join(join_of("left"), ctx)
    assert (
        "SELECT i0_c0, i0_c1, CASE WHEN v.__right THEN i1_c0 END AS i1_c0"
        in steps_of(ctx)["null_extended"]
    )


def test_left_rows_are_not_counted(ctx: Lowering) -> None:
    left_join(join_of("left"), ctx)
    assert [name for name, _ in ctx.steps if name.startswith("totalled")] == ["totalled_2"]
