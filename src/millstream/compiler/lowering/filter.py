"""Lower Filter: keep the rows for which the predicate is true; multiplicities are carried along.

before = input.before    after = input.after
"""

from __future__ import annotations

from millstream.algebra.relation import Filter, Relation
from millstream.compiler.lowering.context import Lowering, spark


def filter_rows(node: Relation, ctx: Lowering) -> str:
    """A WHERE over the input's step."""
    assert isinstance(node, Filter)
    return ctx.step("filtered", f"SELECT * FROM {ctx.lower(node.input)} WHERE {spark(node.predicate)}")
