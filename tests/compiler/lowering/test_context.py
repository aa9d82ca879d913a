"""The text of a statement: by steps for people, nested for Spark."""

from __future__ import annotations

from millstream.algebra.expr import Expr
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.placement.decimals.attempt import EXACT


def test_a_step_that_is_used_once_stands_in_the_place_of_its_name_for_spark() -> None:
    ctx = Lowering({}, {})
    one = ctx.step("read", "SELECT a FROM v")
    two = ctx.step("filtered", f"SELECT * FROM {one} WHERE a <> 'read_0'")
    last = f"SELECT * FROM {two} AS l JOIN {two} AS r ON l.a = r.a"
    assert ctx.finish(last, nested=False) == (
        "WITH read_0 AS (\n  SELECT a FROM v\n),\nfiltered_1 AS (\n  SELECT * FROM read_0 WHERE a <> 'read_0'\n)\n"
        "SELECT * FROM filtered_1 AS l JOIN filtered_1 AS r ON l.a = r.a"
    )
    assert ctx.finish(last, nested=True) == (
        "WITH filtered_1 AS (\n  SELECT * FROM (SELECT a FROM v) WHERE a <> 'read_0'\n)\n"
        "SELECT * FROM filtered_1 AS l JOIN filtered_1 AS r ON l.a = r.a"
    )


def test_where_each_is_used_once_no_name_is_left() -> None:
    ctx = Lowering({}, {})
    last = f"SELECT a FROM {ctx.step('read', 'SELECT a FROM v')}"
    assert ctx.finish(last, nested=True) == "SELECT a FROM (SELECT a FROM v)"


def test_a_number_chosen_by_a_comparison_of_any_size_is_compared_in_any_size() -> None:
    """Spark was told of a function that it does not have."""
    chosen = Expr.parse(f"{EXACT}(compared(CASE WHEN {EXACT}(compared(a, b)) THEN a END, c))")
    assert Lowering({}, {}).spark(chosen) == "COMPARED(CASE WHEN COMPARED(_a, _b) THEN _a END, _c)"
    assert EXACT not in Lowering({}, {}, exact=False).spark(chosen)
