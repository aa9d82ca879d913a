"""Restrict rows to certain groups, before these are recomputed.

before, after: unchanged; NULL keys are equal
"""

from __future__ import annotations

from millstream.algebra.block import AggregateHead
from millstream.compiler.lowering.context import Lowering


def restrict(step: str, head: AggregateHead, view: str, ctx: Lowering) -> str:
    """Semi-join a step with the view of the wanted keys."""
    same = " AND ".join(f"b.{key.name} <=> w.{key.name}" for key in head.keys)
    return ctx.step("wanted", f"SELECT b.* FROM {step} AS b LEFT SEMI JOIN {view} AS w ON {same}")
