"""Lower a join of the body by the rule of its kind."""

from __future__ import annotations

from millstream.algebra.block import Match
from millstream.algebra.relation import Relation
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.full_join import full_join
from millstream.compiler.lowering.inner_join import inner_join
from millstream.compiler.lowering.left_join import left_join
from millstream.compiler.lowering.mark_join import mark_join

KINDS = {"inner": inner_join, "left": left_join, "full": full_join, "mark": mark_join}


def match(node: Relation, ctx: Lowering) -> str:
    """Lower a join by the rule of its kind."""
    assert isinstance(node, Match)
    return KINDS[node.kind](node, ctx)
