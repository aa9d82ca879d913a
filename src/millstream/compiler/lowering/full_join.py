"""Lower a full join: the pairs, and the rows of either side that meet nothing, extended with NULLs.

    extended.before = the row's before where it met nothing before, else 0; after likewise

Both sides must be complete for each row that is here: demand sees to it.
"""

from __future__ import annotations

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.null_extended import null_extended


def full_join(node: Match, ctx: Lowering) -> str:
    """Pairs, left rows alone, right rows alone."""
    return null_extended(node, ctx, ["left", "right"])
