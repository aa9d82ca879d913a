"""Lowering UNION ALL."""

from __future__ import annotations

from tests.compiler.lowering.conftest import steps_of

from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.union_all import union_all


def test_one_part_needs_no_step(ctx: Lowering) -> None:
    assert union_all(["a"], ctx) == "a"
    assert ctx.steps == []


def test_parts_follow_each_other_and_duplicates_stay(ctx: Lowering) -> None:
    union_all(["a", "b"], ctx)
    assert steps_of(ctx)["united"] == "SELECT * FROM a UNION ALL SELECT * FROM b"


def test_few_rows_are_held_in_one_partition() -> None:
    few = Lowering({}, {}, few=True)
    union_all(["a", "b"], few)
    assert steps_of(few)["united"].startswith("SELECT /*+ COALESCE(1) */ * FROM (")
