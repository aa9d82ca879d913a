"""Lower Read: the rows of an input, with both multiplicities; decimals are cast to numbers.

a row read at the new frontier     before 1, after 1
an image of the slice, inserted    before -1           so before + after counts come out as
an image of the slice, deleted     before +1           they were and as they are

A new row is thus two rows, (1, 1) and (-1, 0), and each of them is joined with old rows of other
inputs. Those pairs cancel. Where evaluating one of them may raise an error, the rows are
consolidated before they are joined.
"""

from __future__ import annotations

from millstream.algebra.block import Input, Read
from millstream.algebra.relation import Relation
from millstream.compiler.lowering.context import AFTER, BEFORE, Lowering


def read(node: Relation, ctx: Lowering) -> str:
    """Select the leaves under their flat names."""
    assert isinstance(node, Read)
    name = node.input.name
    columns = [
        _column(f"{name}_{leaf.name}", leaf.name, leaf.wire.spark) for leaf in node.input.leaves
    ]
    rows = _consolidate(node.input, ctx) if ctx.consolidated else ctx.views[name]
    return ctx.step(name, f"SELECT {', '.join([*columns, BEFORE, AFTER])} FROM {rows}")


def _consolidate(rows: Input, ctx: Lowering) -> str:
    """Add a step with each distinct row of an input and the sums of its multiplicities."""
    columns, keys = list[str](), list[str]()
    for leaf in rows.leaves:
        # Spark groups 0 and -0 together.
        is_float = leaf.wire.number == "float"
        columns.append(f"FIRST({leaf.name}) AS {leaf.name}" if is_float else leaf.name)
        keys.append(f"CAST({leaf.name} AS STRING)" if is_float else leaf.name)
    sums = [f"SUM({version}) AS {version}" for version in (BEFORE, AFTER)]
    group_by = f" GROUP BY {', '.join(keys)}" if keys else ""
    some = " OR ".join(f"SUM({version}) <> 0" for version in (BEFORE, AFTER))
    listed = ", ".join([*columns, *sums])
    return ctx.step(
        "consolidated", f"SELECT {listed} FROM {ctx.views[rows.name]}{group_by} HAVING {some}"
    )


def _column(name: str, leaf: str, spark_type: str) -> str:
    if spark_type.startswith("decimal"):
        return f"CAST({leaf} AS {spark_type}) AS {name}"
    return f"{leaf} AS {name}"
