"""Join two sides, each read once, and extend with NULLs the rows that meet nothing.

    pair               before = left.before * right.before, after likewise
    left row alone     before = left.before where the right rows it meets have a before-sum of 0, else 0; after likewise
    right row alone    the same with the sides exchanged

One outer join of Spark finds the pairs, and the rows that have no partner in either version. Each row of it stands for
up to three rows of the result: the pair, and, on one row for each left (right) row, that row alone.

    __left_was, __left_is    how many right rows the left row meets, before and after; NULL but on the row that tells it

By equal columns alone these sums are made once per key, before the join; where ON says more, per row, after it.

Each side is read once because Spark computes what is read twice twice: a chain of n joins would be computed 2^n times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import AFTER, BEFORE, Lowering
from millstream.compiler.lowering.matching import JoinSide, on, sides

Name = Literal["left", "right"]


def null_extended(node: Match, ctx: Lowering, names: Sequence[Name]) -> str:
    """The pairs, and the rows of the named sides that meet nothing."""
    left, right = sides(node, ctx)
    how = "FULL" if "right" in names else "LEFT"
    met = _numbered(node, left, right, how, ctx) if node.residual else _by_key(node, left, right, how, ctx)
    columns = [
        *(_shown("left", one, how) for one in left.columns),
        *(_shown("right", one, how) for one in right.columns),
    ]
    rows = [_pair(), *(alone(name) for name in names)]
    listed = ", ".join([*columns, f"v.{BEFORE}", f"v.{AFTER}"])
    view = f"LATERAL VIEW INLINE(ARRAY({', '.join(rows)})) v AS __left, __right, {BEFORE}, {AFTER}"
    return ctx.step("null_extended", f"SELECT {listed} FROM {met} {view} WHERE v.{BEFORE} <> 0L OR v.{AFTER} <> 0L")


def _shown(name: Name, column: str, how: str) -> str:
    """A column of one side, NULL in the rows of the other side alone."""
    if how == "LEFT" and name == "left":
        return column
    return f"CASE WHEN v.__{name} THEN {column} END AS {column}"


def _pair() -> str:
    products = (f"COALESCE(__left{version} * __right{version}, 0L)" for version in (BEFORE, AFTER))
    return f"STRUCT(true, true, {', '.join(products)})"


def alone(name: Name) -> str:
    """A row of one side that meets nothing, in each version."""
    versions = (("was", BEFORE), ("is", AFTER))
    counts = (f"IF(__{name}_{met} = 0L, COALESCE(__{name}{count}, 0L), 0L)" for met, count in versions)
    return f"STRUCT({str(name == 'left').lower()}, {str(name == 'right').lower()}, {', '.join(counts)})"


# -- by equal columns alone ------------------------------------------------------------------


def _by_key(node: Match, left: JoinSide, right: JoinSide, how: str, ctx: Lowering) -> str:
    """The outer join, with what each row meets told where it meets the first row of a key."""
    one, other = _totalled(left, ctx) if how == "FULL" else left.step, _totalled(right, ctx)
    told = _met_by("left", "r") + (_met_by("right", "l") if how == "FULL" else [])
    return _joined(node, (left, one), (right, other), how, told, ctx)


def _totalled(side: JoinSide, ctx: Lowering) -> str:
    """The rows of a side, each with the sums of its key, and its number among the rows of that key."""
    keys = ", ".join(dict.fromkeys(side.ends))
    over = f"(PARTITION BY {keys})" if keys else "()"
    sums = f"SUM({BEFORE}) OVER {over} AS __was, SUM({AFTER}) OVER {over} AS __is"
    number = f"ROW_NUMBER() OVER ({f'PARTITION BY {keys} ' if keys else ''}ORDER BY {BEFORE}) AS __nth"
    return ctx.step("totalled", f"SELECT *, {sums}, {number} FROM {side.step}")


def _met_by(name: Name, other: str) -> list[str]:
    cases = [f"CASE WHEN {other}.__nth IS NULL THEN 0L WHEN {other}.__nth = 1 THEN {other}.__{one} END"
             for one in ("was", "is")]  # fmt: skip
    return [f"{case} AS __{name}_{one}" for case, one in zip(cases, ("was", "is"), strict=True)]


# -- where ON says more ----------------------------------------------------------------------


def _numbered(node: Match, left: JoinSide, right: JoinSide, how: str, ctx: Lowering) -> str:
    """The outer join, with what each row meets told on the first of its own pairs."""
    names: list[Name] = ["left", "right"] if how == "FULL" else ["left"]
    steps = {name: side.step for name, side in (("left", left), ("right", right))}
    for name in names:
        number = "MONOTONICALLY_INCREASING_ID() AS __number"
        steps[name] = ctx.step("numbered", f"SELECT *, {number} FROM {steps[name]}")
    numbers = [f"{name[0]}.__number AS __{name}_number" for name in names]
    step = _joined(node, (left, steps["left"]), (right, steps["right"]), how, numbers, ctx)
    told = [text for name in names for text in _met_by_pairs(name)]
    return ctx.step("match_counts", f"SELECT *, {', '.join(told)} FROM {step}")


def _met_by_pairs(name: Name) -> list[str]:
    number, other = f"__{name}_number", "right" if name == "left" else "left"
    first = f"ROW_NUMBER() OVER (PARTITION BY {number} ORDER BY {number}) = 1"
    sums = [
        (f"SUM(__{other}{count}) OVER (PARTITION BY {number})", met) for count, met in ((BEFORE, "was"), (AFTER, "is"))
    ]
    return [f"CASE WHEN {first} THEN COALESCE({total}, 0L) END AS __{name}_{met}" for total, met in sums]


def _joined(
    node: Match, left: tuple[JoinSide, str], right: tuple[JoinSide, str], how: str, more: Sequence[str], ctx: Lowering
) -> str:
    (one, one_step), (other, other_step) = left, right
    columns = [*(f"l.{name}" for name in one.columns), *(f"r.{name}" for name in other.columns)]
    counts = [f"{name[0]}.{count} AS __{name}{count}" for name in ("left", "right") for count in (BEFORE, AFTER)]
    listed = ", ".join([*columns, *counts, *more])
    condition = on(node) if node.conditions else "true"
    joined = f"{one_step} AS l {how} JOIN {other_step} AS r ON {condition}"
    return ctx.step("joined", f"{ctx.select} {listed} FROM {joined}")
