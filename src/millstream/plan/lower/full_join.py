"""Lower a full join: the pairs, and the rows of either side that meet nothing, padded with NULLs.

    padded.before = the row's before where it met nothing before, else 0; after likewise

Both sides must be complete for each row that is here: demand sees to it.
"""

from __future__ import annotations

from millstream.plan.block import Match
from millstream.plan.lower.context import Lowering
from millstream.plan.lower.matching import counted, padding, pairs, sides
from millstream.plan.lower.union_all import union_all


def full_join(node: Match, ctx: Lowering) -> str:
    """Pairs, padded left rows, padded right rows."""
    left, right = sides(node, ctx)
    columns = left.columns + right.columns
    met = pairs(node, left, right, ctx)
    lonely = padding(counted(left, right, node.rest, ctx), left, columns, ctx)
    others = padding(counted(right, left, node.rest, ctx), right, columns, ctx)
    return union_all([met, lonely, others], ctx)
