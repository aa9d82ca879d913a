"""Lower Project: compute the outputs of each row; multiplicities are carried along.

before = input.before    after = input.after
"""

from __future__ import annotations

from millstream.algebra.relation import Project, Relation
from millstream.compiler.lowering.context import AFTER, BEFORE, Lowering, spark


def project(node: Relation, ctx: Lowering) -> str:
    """A SELECT list over the input's step."""
    assert isinstance(node, Project)
    outputs = [f"{spark(output.expr)} AS {output.name}" for output in node.outputs]
    return ctx.step("body", f"SELECT {', '.join([*outputs, BEFORE, AFTER])} FROM {ctx.lower(node.input)}")
