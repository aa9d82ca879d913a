"""Lower a left join: the pairs of the inner join, and each left row without a match, null-extended.

    extended.before = left.before if the row had no match before, else 0
    extended.after  = left.after  if the row has no match after, else 0

The right side must be complete for each left row read; demand guarantees it.
"""

from __future__ import annotations

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.null_extended import null_extended


def left_join(node: Match, ctx: Lowering) -> str:
    """Join the sides, and null-extend the left rows without a match."""
    return null_extended(node, ctx, ["left"])
