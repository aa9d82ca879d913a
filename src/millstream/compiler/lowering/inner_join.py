"""Lower an inner join: every pair that meets, as often as the product of its rows, in each version.

    before = left.before * right.before
    after  = left.after  * right.after

A NULL key meets nothing. One rule for all changes: a pair whose two sides both changed is counted
once, because both versions are products of complete rows.
"""

from __future__ import annotations

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.matching import pairs, sides


def inner_join(node: Match, ctx: Lowering) -> str:
    """Join the two steps and multiply column by column."""
    left, right = sides(node, ctx)
    return pairs(node, left, right, ctx)
