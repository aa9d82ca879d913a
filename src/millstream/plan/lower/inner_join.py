"""Lower Join: every pair that meets, as often as the product of its rows, in each version.

    before = left.before * right.before
    after  = left.after  * right.after

A NULL key meets nothing. One rule for all changes: a pair whose two sides both changed is counted
once, because both versions are products of complete rows.
"""

from __future__ import annotations

from millstream.algebra.relation import Join, Relation
from millstream.plan.lower.context import AFTER, BEFORE, Lowering, flat_columns, spark


def inner_join(node: Relation, ctx: Lowering) -> str:
    """Join the two steps and multiply column by column."""
    assert isinstance(node, Join)
    left, right = ctx.lower(node.left), ctx.lower(node.right)
    columns = [f"l.{name}" for name in flat_columns(node.left)] + [f"r.{name}" for name in flat_columns(node.right)]
    products = [f"l.{BEFORE} * r.{BEFORE} AS {BEFORE}", f"l.{AFTER} * r.{AFTER} AS {AFTER}"]
    how = f"JOIN {right} AS r ON {spark(node.condition)}" if node.condition else f"CROSS JOIN {right} AS r"
    return ctx.step("joined", f"SELECT {', '.join(columns + products)} FROM {left} AS l {how}")
