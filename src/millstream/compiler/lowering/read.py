"""Lower Read: the rows of an input, with both multiplicities; decimals are cast to numbers.

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
    name = node.input.name
    columns = [_column(f"{name}_{leaf.name}", leaf.name, leaf.wire.spark) for leaf in node.input.leaves]
    return ctx.step(name, f"SELECT {', '.join([*columns, BEFORE, AFTER])} FROM {ctx.views[name]}")


def _column(name: str, leaf: str, spark_type: str) -> str:
    if spark_type.startswith("decimal"):
        return f"CAST({leaf} AS {spark_type}) AS {name}"
    return f"{leaf} AS {name}"
