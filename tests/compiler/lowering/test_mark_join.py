"""Lowering a mark join."""

from __future__ import annotations

from tests.compiler.lowering.conftest import join_of, steps_of

from millstream.algebra.expr import Ref
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.mark_join import mark_join


def test_a_row_whose_mark_changed_becomes_one_row_per_version(ctx: Lowering) -> None:
    mark_join(join_of("mark", mark=Ref("m", "met")), ctx)
    marked = steps_of(ctx)["marked"]
    assert "IF((__was > 0) = (__is > 0), ARRAY(STRUCT(__was > 0, true, true))" in marked
    assert (
        "v.mark AS m_met, IF(v.old, __before, 0) AS __before, IF(v.new, __after, 0) AS __after"
        in marked
    )


def test_the_columns_of_the_right_side_are_gone(ctx: Lowering) -> None:
    mark_join(join_of("mark", mark=Ref("m", "met")), ctx)
    assert "i1_c1" not in steps_of(ctx)["marked"]
