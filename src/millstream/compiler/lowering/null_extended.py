"""Join two sides, each read once, and null-extend the rows without a match.

    pair               before = left.before * right.before, after likewise
    left row alone     before = left.before if its matches have a before-sum of 0, else 0; after likewise
    right row alone    as a left row, with the sides exchanged

One outer join of Spark finds the pairs, and the rows that have no match in either version. Each of its rows stands for
up to three rows of the result: the pair and, on exactly one row per left (right) row, that row alone.

    __left_was, __left_is    the number of matches of the left row, before and after; NULL on its other rows

If ON is equalities alone, these sums are computed once per key, before the join; with a residual condition, per row,
after it.

Each side is read once because Spark computes a step again for each reader: a chain of n joins would take 2^n times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import AFTER, BEFORE, Lowering
from millstream.compiler.lowering.matching import JoinSide, on, sides

Name = Literal["left", "right"]


def null_extended(node: Match, ctx: Lowering, names: Sequence[Name]) -> str:
    """Add a step with the pairs, and the rows of the named sides without a match."""
    left, right = sides(node, ctx)
    how = "FULL" if "right" in names else "LEFT"
    met = _numbered(node, left, right, how, ctx) if node.residual else _by_key(node, left, right, how, ctx)
    columns = [
        *(_output("left", column, how) for column in left.columns),
        *(_output("right", column, how) for column in right.columns),
    ]
    rows = [_pair(), *(alone(name) for name in names)]
    listed = ", ".join([*columns, f"v.{BEFORE}", f"v.{AFTER}"])
    view = f"LATERAL VIEW INLINE(ARRAY({', '.join(rows)})) v AS __left, __right, {BEFORE}, {AFTER}"
    return ctx.step("null_extended", f"SELECT {listed} FROM {met} {view} WHERE v.{BEFORE} <> 0L OR v.{AFTER} <> 0L")


def _output(name: Name, column: str, how: str) -> str:
    """Return a column of one side, NULL in the rows of the other side alone."""
    if how == "LEFT" and name == "left":
        return column
    return f"CASE WHEN v.__{name} THEN {column} END AS {column}"


def _pair() -> str:
    products = (f"COALESCE(__left{version} * __right{version}, 0L)" for version in (BEFORE, AFTER))
    return f"STRUCT(true, true, {', '.join(products)})"


def alone(name: Name) -> str:
    """Return the struct of a row of one side alone: its multiplicity in each version in which it has no match."""
    versions = (("was", BEFORE), ("is", AFTER))
    counts = (f"IF(__{name}_{met} = 0L, COALESCE(__{name}{count}, 0L), 0L)" for met, count in versions)
    return f"STRUCT({str(name == 'left').lower()}, {str(name == 'right').lower()}, {', '.join(counts)})"


# -- by equal columns alone ------------------------------------------------------------------


def _by_key(node: Match, left: JoinSide, right: JoinSide, how: str, ctx: Lowering) -> str:
    """Add the outer join; the number of a row's matches stands beside the first row of its key."""
    left_step = _totalled(left, ctx) if how == "FULL" else left.step
    right_step = _totalled(right, ctx)
    counts = _match_counts("left", "r") + (_match_counts("right", "l") if how == "FULL" else [])
    return _joined(node, (left, left_step), (right, right_step), how, counts, ctx)


def _totalled(side: JoinSide, ctx: Lowering) -> str:
    """Add a step with the rows of a side, each with the sums of its key and its number within the key."""
    keys = ", ".join(dict.fromkeys(side.ends))
    over = f"(PARTITION BY {keys})" if keys else "()"
    sums = f"SUM({BEFORE}) OVER {over} AS __was, SUM({AFTER}) OVER {over} AS __is"
    number = f"ROW_NUMBER() OVER ({f'PARTITION BY {keys} ' if keys else ''}ORDER BY {BEFORE}) AS __nth"
    return ctx.step("totalled", f"SELECT *, {sums}, {number} FROM {side.step}")


def _match_counts(name: Name, other: str) -> list[str]:
    cases = [f"CASE WHEN {other}.__nth IS NULL THEN 0L WHEN {other}.__nth = 1 THEN {other}.__{one} END"
             for one in ("was", "is")]  # fmt: skip
    return [f"{case} AS __{name}_{one}" for case, one in zip(cases, ("was", "is"), strict=True)]


# -- with a residual condition ---------------------------------------------------------------


def _numbered(node: Match, left: JoinSide, right: JoinSide, how: str, ctx: Lowering) -> str:
    """Add the outer join; the number of a row's matches stands on the first of its own pairs."""
    names: list[Name] = ["left", "right"] if how == "FULL" else ["left"]
    steps = {name: side.step for name, side in (("left", left), ("right", right))}
    for name in names:
        number = "MONOTONICALLY_INCREASING_ID() AS __number"
        steps[name] = ctx.step("numbered", f"SELECT *, {number} FROM {steps[name]}")
    numbers = [f"{name[0]}.__number AS __{name}_number" for name in names]
    step = _joined(node, (left, steps["left"]), (right, steps["right"]), how, numbers, ctx)
    counts = [text for name in names for text in _match_counts_by_row(name)]
    return ctx.step("match_counts", f"SELECT *, {', '.join(counts)} FROM {step}")


def _match_counts_by_row(name: Name) -> list[str]:
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
