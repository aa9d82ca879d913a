"""Lower Filter: the rows for which the predicate is true, with their multiplicities.

before = input.before    after = input.after
"""

from __future__ import annotations

from millstream.algebra.relation import Filter, Relation
from millstream.compiler.lowering.context import Lowering, in_a_version


def filter_rows(node: Relation, ctx: Lowering) -> str:
    """Select from the input with the predicate as WHERE."""
    assert isinstance(node, Filter)
    guard = in_a_version([node.predicate])
    predicate = (
        f"{guard[0]} AND ({ctx.spark(node.predicate)})" if guard else ctx.spark(node.predicate)
    )
    return ctx.step("filtered", f"SELECT * FROM {ctx.lower(node.input)} WHERE {predicate}")
