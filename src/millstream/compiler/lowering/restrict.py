"""Keep the rows of certain groups only, before those groups are recomputed.

before, after: carried along; a NULL in a key is a value like any other
"""

from __future__ import annotations

from millstream.algebra.block import AggregateHead
from millstream.compiler.lowering.context import Lowering


def restrict(step: str, head: AggregateHead, view: str, ctx: Lowering) -> str:
    """A semi-join with the keys wanted."""
    same = " AND ".join(f"b.{key.name} <=> w.{key.name}" for key in head.keys)
    return ctx.step("wanted", f"SELECT b.* FROM {step} AS b LEFT SEMI JOIN {view} AS w ON {same}")
