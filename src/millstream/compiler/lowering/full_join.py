"""Lower a full join: the pairs, and the rows of either side without a match, null-extended.

    extended.before = the row's before if it had no match before, else 0; after likewise

Each side must be complete for each row read of the other; demand guarantees it.
"""

from __future__ import annotations

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.null_extended import null_extended


def full_join(node: Match, ctx: Lowering) -> str:
    """Join the sides, and null-extend the rows of either side without a match."""
    return null_extended(node, ctx, ["left", "right"])
