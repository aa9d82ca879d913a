"""Lower a left join: the pairs of the inner join, and each left row that meets nothing, padded with NULLs.

    padded.before = left.before where no right row was met before, else 0
    padded.after  = left.after  where no right row is met after, else 0

The right side must be complete for each left row that is here: demand sees to it.
"""

from __future__ import annotations

from millstream.plan.block import Match
from millstream.plan.lower.context import Lowering
from millstream.plan.lower.matching import counted, padding, pairs, sides
from millstream.plan.lower.union_all import union_all


def left_join(node: Match, ctx: Lowering) -> str:
    """Pairs and padded rows, one after the other."""
    left, right = sides(node, ctx)
    met = pairs(node, left, right, ctx)
    alone = counted(left, right, node.rest, ctx)
    return union_all([met, padding(alone, left, left.columns + right.columns, ctx)], ctx)
