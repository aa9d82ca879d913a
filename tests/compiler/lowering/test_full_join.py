"""A full join: the pairs, and the rows of either side without a match."""

from __future__ import annotations

from tests.compiler.lowering.conftest import join_of, steps_of

from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.full_join import full_join


def test_the_rows_of_both_sides_are_null_extended(ctx: Lowering) -> None:
    full_join(join_of("full"), ctx)
    steps = steps_of(ctx)
    assert " FULL JOIN " in steps["joined"]
    assert "STRUCT(true, false" in steps["null_extended"]
    assert "STRUCT(false, true" in steps["null_extended"]


def test_the_columns_of_both_sides_can_become_null(ctx: Lowering) -> None:
    full_join(join_of("full"), ctx)
    columns = steps_of(ctx)["null_extended"]
    assert "CASE WHEN v.__left THEN i0_c0 END AS i0_c0" in columns
    assert "CASE WHEN v.__right THEN i1_c0 END AS i1_c0" in columns


def test_the_matches_of_both_sides_are_counted(ctx: Lowering) -> None:
    full_join(join_of("full"), ctx)
    assert len([name for name, _ in ctx.steps if name.startswith("totalled")]) == 2
    joined = steps_of(ctx)["joined"]
    assert "AS __left_was" in joined
    assert "AS __right_was" in joined
