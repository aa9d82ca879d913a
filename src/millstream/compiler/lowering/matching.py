"""Count for each row of one side how many rows of the other it meets, before and after.

    __was = sum of the other side's before    __is = sum of its after

By equal columns alone the other side is summed per key once; where more must be true of a pair, each
row is numbered and its own pairs are summed.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.algebra.block import Match
from millstream.algebra.expr import Expr
from millstream.compiler.lowering.context import AFTER, BEFORE, Lowering, flat, flat_columns, spark

WAS, IS = "__was", "__is"


@dataclass(frozen=True)
class JoinSide:
    """One side of a join: the step that has its rows, its columns, and its ends of the pairs."""

    step: str
    columns: list[str]
    ends: list[str]
    signs: list[str]
    """By what each end is equal to the other's: `=`, or `<=>` where NULLs are."""


def sides(node: Match, ctx: Lowering) -> tuple[JoinSide, JoinSide]:
    """Both sides, lowered; a pair may be written either way round."""
    lefts, rights = flat_columns(node.left), flat_columns(node.right)
    pairs = [pair if flat(pair.one) in lefts else pair.swap() for pair in node.pairs]
    signs = ["<=>" if pair.nulls else "=" for pair in pairs]
    left = JoinSide(ctx.lower(node.left), lefts, [flat(pair.one) for pair in pairs], signs)
    return left, JoinSide(ctx.lower(node.right), rights, [flat(pair.other) for pair in pairs], signs)


def pairs(node: Match, left: JoinSide, right: JoinSide, ctx: Lowering) -> str:
    """Every pair that meets: in each version, the product of its rows."""
    columns = [f"l.{name}" for name in left.columns] + [f"r.{name}" for name in right.columns]
    products = [f"l.{BEFORE} * r.{BEFORE} AS {BEFORE}", f"l.{AFTER} * r.{AFTER} AS {AFTER}"]
    how = f"JOIN {right.step} AS r ON {on(node)}" if node.conditions else f"CROSS JOIN {right.step} AS r"
    # A row of an old version beside one of a new version is in neither. Left in, there would be 2^n of them in n joins.
    chained = any(isinstance(side, Match) for side in (node.left, node.right))
    both = [f"l.{version} * r.{version} <> 0L" for version in (BEFORE, AFTER)]
    where = f" WHERE {' OR '.join(both)}" if chained else ""
    return ctx.step("joined", f"{ctx.select} {', '.join(columns + products)} FROM {left.step} AS l {how}{where}")


def on(node: Match) -> str:
    """What must be true of a pair."""
    return " AND ".join(f"({spark(one)})" if one in node.residual else spark(one) for one in node.conditions)


def counted(side: JoinSide, other: JoinSide, rest: tuple[Expr, ...], ctx: Lowering) -> str:
    """The rows of one side with how many of the other they meet."""
    if rest:
        return _one_by_one(side, other, rest, ctx)
    sums = f"SUM({BEFORE}) AS {WAS}, SUM({AFTER}) AS {IS}"
    keys = list(dict.fromkeys(other.ends))
    grouped = f"SELECT {', '.join([*keys, sums])} FROM {other.step}" + (f" GROUP BY {', '.join(keys)}" if keys else "")
    step = ctx.step("counts", grouped)
    same = " AND ".join(_same(side, other, "k"))
    how = f"LEFT JOIN {step} AS k ON {same}" if keys else f"CROSS JOIN {step} AS k"
    listed = [*(f"l.{name}" for name in side.columns), f"l.{BEFORE}", f"l.{AFTER}"]
    found = [f"COALESCE(k.{name}, 0) AS {name}" for name in (WAS, IS)]
    return ctx.step("counted", f"SELECT {', '.join(listed + found)} FROM {side.step} AS l {how}")


def _one_by_one(side: JoinSide, other: JoinSide, rest: tuple[Expr, ...], ctx: Lowering) -> str:
    numbered = ctx.step("numbered", f"SELECT *, MONOTONICALLY_INCREASING_ID() AS __nth FROM {side.step}")
    met = " AND ".join([*_same(side, other, "r"), *(f"({spark(one)})" for one in rest)])
    listed = [f"FIRST(l.{name}) AS {name}" for name in (*side.columns, BEFORE, AFTER)]
    found = [f"COALESCE(SUM(r.{old}), 0) AS {new}" for old, new in ((BEFORE, WAS), (AFTER, IS))]
    joined = f"{numbered} AS l LEFT JOIN {other.step} AS r ON {met}"
    return ctx.step("counted", f"SELECT {', '.join(listed + found)} FROM {joined} GROUP BY l.__nth")


def _same(side: JoinSide, other: JoinSide, alias: str) -> list[str]:
    ends = zip(side.ends, side.signs, other.ends, strict=True)
    return [f"l.{one} {sign} {alias}.{two}" for one, sign, two in ends]
