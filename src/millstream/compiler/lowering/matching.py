"""Count the matches of each row of one side of a join, before and after.

    __was = sum of the other side's before    __is = sum of the other side's after

If the condition is equalities alone, the other side is summed once per key. With a residual
condition each row is numbered, and its own pairs are summed.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.algebra.block import Match
from millstream.algebra.expr import Expr
from millstream.compiler.lowering.context import (
    AFTER,
    BEFORE,
    Lowering,
    flat,
    flat_columns,
    may_raise,
)

WAS, IS = "__was", "__is"


@dataclass(frozen=True)
class JoinSide:
    """One side of a join: its step, its columns, and its columns of the equalities."""

    step: str
    columns: list[str]
    ends: list[str]
    signs: list[str]
    """The operator of each equality: `=`, or `<=>` if NULLs are equal."""


def sides(node: Match, ctx: Lowering) -> tuple[JoinSide, JoinSide]:
    """Lower both sides; an equality may name them in either order."""
    lefts, rights = flat_columns(node.left), flat_columns(node.right)
    pairs = [pair if flat(pair.one) in lefts else pair.swap() for pair in node.pairs]
    signs = ["<=>" if pair.nulls else "=" for pair in pairs]
    left = JoinSide(ctx.lower(node.left), lefts, [flat(pair.one) for pair in pairs], signs)
    right = JoinSide(ctx.lower(node.right), rights, [flat(pair.other) for pair in pairs], signs)
    return left, right


def pairs(node: Match, left: JoinSide, right: JoinSide, ctx: Lowering) -> str:
    """Add a step with the pairs of an inner join; each multiplicity is the product of the two
    rows'.
    """
    columns = [f"l.{name}" for name in left.columns] + [f"r.{name}" for name in right.columns]
    products = [f"l.{version} * r.{version} AS {version}" for version in (BEFORE, AFTER)]
    joined = (
        f"JOIN {right.step} AS r ON {on(node, ctx)}"
        if node.conditions
        else f"CROSS JOIN {right.step} AS r"
    )
    # If pairs that are in neither version stayed, n joins could have 2^n of them.
    chained = isinstance(node.left, Match) or isinstance(node.right, Match)
    where = f" WHERE {_IN_A_VERSION}" if chained else ""
    listed = ", ".join(columns + products)
    return ctx.step("joined", f"{ctx.select} {listed} FROM {left.step} AS l {joined}{where}")


def on(node: Match, ctx: Lowering) -> str:
    """Return the join condition; residual conditions come last, each in parentheses."""
    equalities = [
        ctx.spark(condition) for condition in node.conditions if condition not in node.residual
    ]
    return " AND ".join([*equalities, *_residual_conditions(node.residual, ctx)])


# A pair of an old and a new row is in neither version.
_IN_A_VERSION = " OR ".join(f"l.{version} * r.{version} <> 0L" for version in (BEFORE, AFTER))


def _residual_conditions(residual: tuple[Expr, ...], ctx: Lowering) -> list[str]:
    """Return the residual conditions; before one that may raise, the condition that the pair is in
    a version.
    """
    guards = [f"({_IN_A_VERSION})"] if any(map(may_raise, residual)) else []
    return [*guards, *(f"({ctx.spark(condition)})" for condition in residual)]


def count_matches(
    side: JoinSide, other: JoinSide, residual: tuple[Expr, ...], ctx: Lowering
) -> str:
    """Add a step with the rows of one side and the number of their matches on the other."""
    return (
        _count_by_row(side, other, residual, ctx) if residual else _count_by_key(side, other, ctx)
    )


def _count_by_key(side: JoinSide, other: JoinSide, ctx: Lowering) -> str:
    """Count the matches once for each key of the other side."""
    keys = list(dict.fromkeys(other.ends))
    sums = f"SUM({BEFORE}) AS {WAS}, SUM({AFTER}) AS {IS}"
    group_by = f" GROUP BY {', '.join(keys)}" if keys else ""
    counts = ctx.step("counts", f"SELECT {', '.join([*keys, sums])} FROM {other.step}{group_by}")
    same = " AND ".join(_equalities(side, other, "k"))
    joined = f"LEFT JOIN {counts} AS k ON {same}" if keys else f"CROSS JOIN {counts} AS k"
    columns = [f"l.{name}" for name in (*side.columns, BEFORE, AFTER)]
    matches = [f"COALESCE(k.{name}, 0) AS {name}" for name in (WAS, IS)]
    return ctx.step(
        "counted", f"SELECT {', '.join(columns + matches)} FROM {side.step} AS l {joined}"
    )


def _count_by_row(
    side: JoinSide, other: JoinSide, residual: tuple[Expr, ...], ctx: Lowering
) -> str:
    """Count the matches of each row by its own pairs."""
    numbered = ctx.step(
        "numbered", f"SELECT *, MONOTONICALLY_INCREASING_ID() AS __nth FROM {side.step}"
    )
    condition = " AND ".join([*_equalities(side, other, "r"), *_residual_conditions(residual, ctx)])
    columns = [f"FIRST(l.{name}) AS {name}" for name in (*side.columns, BEFORE, AFTER)]
    matches = [
        f"COALESCE(SUM(r.{version}), 0) AS {name}" for version, name in ((BEFORE, WAS), (AFTER, IS))
    ]
    joined = f"{numbered} AS l LEFT JOIN {other.step} AS r ON {condition}"
    return ctx.step(
        "counted", f"SELECT {', '.join(columns + matches)} FROM {joined} GROUP BY l.__nth"
    )


def _equalities(side: JoinSide, other: JoinSide, alias: str) -> list[str]:
    ends = zip(side.ends, side.signs, other.ends, strict=True)
    return [f"l.{own} {sign} {alias}.{end}" for own, sign, end in ends]
