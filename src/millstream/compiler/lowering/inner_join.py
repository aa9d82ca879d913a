"""Lower an inner join: every pair that satisfies the condition, with the product of the
multiplicities.

    before = left.before * right.before
    after  = left.after  * right.after

A NULL key has no match. One rule covers all changes: a pair of which both sides changed is counted
once, because each version is a product of complete rows.
"""

from __future__ import annotations

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.matching import pairs, sides


def inner_join(node: Match, ctx: Lowering) -> str:
    """Join the two steps and multiply column by column."""
    left, right = sides(node, ctx)
    return pairs(node, left, right, ctx)
