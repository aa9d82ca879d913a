"""Lower Project: the outputs of each row, with its multiplicities.

before = input.before    after = input.after
"""

from __future__ import annotations

from millstream.algebra.relation import Project, Relation
from millstream.compiler.lowering.context import AFTER, BEFORE, Lowering, in_a_version


def project(node: Relation, ctx: Lowering) -> str:
    """Select the outputs from the input."""
    assert isinstance(node, Project)
    outputs = [f"{ctx.spark(output.expr)} AS {output.name}" for output in node.outputs]
    conditions = in_a_version(output.expr for output in node.outputs)
    where = f" WHERE {conditions[0]}" if conditions else ""
    return ctx.step(
        "body", f"SELECT {', '.join([*outputs, BEFORE, AFTER])} FROM {ctx.lower(node.input)}{where}"
    )
