"""Lower a mark join: each left row with a mark, true if the row has a match.

    mark unchanged    one row with both multiplicities
    mark changed      (before, 0) with the old mark and (0, after) with the new one

EXISTS, IN and their negations, under AND, OR and NOT alike, are conditions over marks. The right
side must be complete for each left row read; demand guarantees it.
"""

from __future__ import annotations

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import AFTER, BEFORE, Lowering, flat
from millstream.compiler.lowering.matching import IS, WAS, count_matches, sides


def mark_join(node: Match, ctx: Lowering) -> str:
    """Count the matches of each left row, and split the rows whose mark changed."""
    assert node.mark is not None
    left, right = sides(node, ctx)
    step = count_matches(left, right, node.residual, ctx)
    was, now = f"{WAS} > 0", f"{IS} > 0"
    unchanged = f"ARRAY(STRUCT({was}, true, true))"
    changed = f"ARRAY(STRUCT({was}, true, false), STRUCT({now}, false, true))"
    marks = (
        f"LATERAL VIEW INLINE(IF(({was}) = ({now}), {unchanged}, {changed})) v AS mark, old, new"
    )
    versions = [f"IF(v.old, {BEFORE}, 0) AS {BEFORE}", f"IF(v.new, {AFTER}, 0) AS {AFTER}"]
    listed = ", ".join([*left.columns, f"v.mark AS {flat(node.mark)}", *versions])
    return ctx.step("marked", f"SELECT {listed} FROM {step} {marks}")
