"""Lower Read: the rows of an input, with both multiplicities, decimals made numbers.

a row read at the new frontier     before 1, after 1
an image of the slice, inserted    before -1           so before + after counts come out as
an image of the slice, deleted     before +1           they were and as they are
"""

from __future__ import annotations

from millstream.algebra.block import Read
from millstream.algebra.relation import Relation
from millstream.compiler.lowering.context import AFTER, BEFORE, Lowering


def read(node: Relation, ctx: Lowering) -> str:
    """Select the leaves under their flat names."""
    assert isinstance(node, Read)
    one = node.input
    columns = [_column(f"{one.name}_{leaf.name}", leaf.name, leaf.wire.spark) for leaf in one.leaves]
    return ctx.step(one.name, f"SELECT {', '.join([*columns, BEFORE, AFTER])} FROM {ctx.views[one.name]}")


def _column(name: str, leaf: str, spark_type: str) -> str:
    if spark_type.startswith("decimal"):
        return f"CAST({leaf} AS {spark_type}) AS {name}"
    return f"{leaf} AS {name}"
