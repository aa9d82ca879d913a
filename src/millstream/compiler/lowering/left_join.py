"""Lower a left join: the pairs of the inner join, and each left row that meets nothing, extended with NULLs.

    extended.before = left.before where no right row was met before, else 0
    extended.after  = left.after  where no right row is met after, else 0

The right side must be complete for each left row that is here: demand sees to it.
"""

from __future__ import annotations

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.null_extended import null_extended


def left_join(node: Match, ctx: Lowering) -> str:
    """Pairs, and left rows alone."""
    return null_extended(node, ctx, ["left"])
