"""Lower a join of the body by the rule of its kind."""

from __future__ import annotations

from millstream.algebra.relation import Relation
from millstream.plan.block import Match
from millstream.plan.lower.context import Lowering
from millstream.plan.lower.full_join import full_join
from millstream.plan.lower.inner_join import inner_join
from millstream.plan.lower.left_join import left_join
from millstream.plan.lower.mark_join import mark_join

KINDS = {"inner": inner_join, "left": left_join, "full": full_join, "mark": mark_join}


def match(node: Relation, ctx: Lowering) -> str:
    """The rule of its kind."""
    assert isinstance(node, Match)
    return KINDS[node.kind](node, ctx)
