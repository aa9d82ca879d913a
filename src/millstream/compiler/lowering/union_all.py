"""Lower UnionAll: the rows of all parts, one after the other.

before, after: concatenated
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.compiler.lowering.context import Lowering


def union_all(parts: Sequence[str], ctx: Lowering) -> str:
    """Unite the steps of a block's branches, which have the same columns in the same order."""
    if len(parts) == 1:
        return parts[0]
    united = " UNION ALL ".join(f"SELECT * FROM {part}" for part in parts)
    return ctx.step("united", f"{ctx.select} * FROM ({united})" if ctx.few else united)
