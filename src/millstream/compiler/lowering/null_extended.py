"""Join two sides, each read once, and null-extend the rows without a match.

    pair               before = left.before * right.before, after likewise
    left row alone     before = left.before if its matches have a before-sum of 0, else 0; after likewise
    right row alone    as a left row, with the sides exchanged

One outer join of Spark finds the pairs, and the rows that have no match in either version. Each of
its rows stands for up to three rows of the result: the pair and, on exactly one row per left
(right) row, that row alone.

    __left_was, __left_is    the number of matches of the left row, before and after; NULL on its other rows

If ON is equalities alone, these sums are computed once per key, before the join; with a residual
condition, per row, after it.

Each side is read once because Spark computes a step again for each reader: a chain of n joins would
take 2^n times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import AFTER, BEFORE, Lowering
from millstream.compiler.lowering.matching import JoinSide, on, sides

Name = Literal["left", "right"]


@dataclass(frozen=True)
class _SparkJoin:
    """The outer join that Spark computes, LEFT or FULL."""

    left: JoinSide
    right: JoinSide
    condition: str
    extended: tuple[Name, ...]
    """The sides whose rows without a match are null-extended."""

    @property
    def kind(self) -> str:
        return "FULL" if "right" in self.extended else "LEFT"

    def join(self, left_step: str, right_step: str, more: Sequence[str], ctx: Lowering) -> str:
        """Add the join of two steps, with the columns and multiplicities of both, and more columns."""
        columns = [f"l.{name}" for name in self.left.columns] + [
            f"r.{name}" for name in self.right.columns
        ]
        versions = [
            f"{side[0]}.{version} AS __{side}{version}"
            for side in _SIDES
            for version in (BEFORE, AFTER)
        ]
        listed = ", ".join([*columns, *versions, *more])
        joined = f"{left_step} AS l {self.kind} JOIN {right_step} AS r ON {self.condition}"
        return ctx.step("joined", f"{ctx.select} {listed} FROM {joined}")

    def outputs(self) -> list[str]:
        """Return the columns of both sides, each NULL in the rows of the other side alone."""
        left = (
            self.left.columns
            if self.kind == "LEFT"
            else [_null_unless("left", name) for name in self.left.columns]
        )
        return [*left, *(_null_unless("right", name) for name in self.right.columns)]


_SIDES: tuple[Name, Name] = ("left", "right")


def null_extended(node: Match, ctx: Lowering, names: Sequence[Name]) -> str:
    """Add a step with the pairs, and the rows of the named sides without a match."""
    left, right = sides(node, ctx)
    join = _SparkJoin(left, right, on(node, ctx) if node.conditions else "true", tuple(names))
    joined = _join_by_row(join, ctx) if node.residual else _join_by_key(join, ctx)
    rows = ", ".join([_pair(), *(row_alone(name) for name in names)])
    view = f"LATERAL VIEW INLINE(ARRAY({rows})) v AS __left, __right, {BEFORE}, {AFTER}"
    listed = ", ".join([*join.outputs(), f"v.{BEFORE}", f"v.{AFTER}"])
    some = f"v.{BEFORE} <> 0L OR v.{AFTER} <> 0L"
    return ctx.step("null_extended", f"SELECT {listed} FROM {joined} {view} WHERE {some}")


def _null_unless(name: Name, column: str) -> str:
    """Return a column of one side, NULL in the rows of the other side alone."""
    return f"CASE WHEN v.__{name} THEN {column} END AS {column}"


def _pair() -> str:
    products = (f"COALESCE(__left{version} * __right{version}, 0L)" for version in (BEFORE, AFTER))
    return f"STRUCT(true, true, {', '.join(products)})"


def row_alone(name: Name) -> str:
    """Return the struct of a row of one side alone: its multiplicity in each version in which it
    has no match.
    """
    versions = (("was", BEFORE), ("is", AFTER))
    counts = (
        f"IF(__{name}_{met} = 0L, COALESCE(__{name}{count}, 0L), 0L)" for met, count in versions
    )
    return f"STRUCT({str(name == 'left').lower()}, {str(name == 'right').lower()}, {', '.join(counts)})"


# -- by equal columns alone ------------------------------------------------------------------


def _join_by_key(join: _SparkJoin, ctx: Lowering) -> str:
    """Add the outer join; the number of a row's matches stands beside the first row of its key."""
    left_step = _add_totals(join.left, ctx) if join.kind == "FULL" else join.left.step
    right_step = _add_totals(join.right, ctx)
    counts = [count for name in join.extended for count in _match_counts(name)]
    return join.join(left_step, right_step, counts, ctx)


def _add_totals(side: JoinSide, ctx: Lowering) -> str:
    """Add a step with the rows of a side, each with the sums of its key and its number within the
    key.
    """
    keys = ", ".join(dict.fromkeys(side.ends))
    partition = f"PARTITION BY {keys}" if keys else ""
    sums = f"SUM({BEFORE}) OVER ({partition}) AS __was, SUM({AFTER}) OVER ({partition}) AS __is"
    order = f"{partition} ORDER BY {BEFORE}".strip()
    return ctx.step(
        "totalled", f"SELECT *, {sums}, ROW_NUMBER() OVER ({order}) AS __nth FROM {side.step}"
    )


def _match_counts(name: Name) -> list[str]:
    """Return the number of matches of a row, from the sums that stand beside the rows of the other
    side.
    """
    other = "r" if name == "left" else "l"
    none = f"WHEN {other}.__nth IS NULL THEN 0L"
    return [
        f"CASE {none} WHEN {other}.__nth = 1 THEN {other}.__{met} END AS __{name}_{met}"
        for met in ("was", "is")
    ]


# -- with a residual condition ---------------------------------------------------------------


def _join_by_row(join: _SparkJoin, ctx: Lowering) -> str:
    """Add the outer join; the number of a row's matches stands on the first of its own pairs."""
    steps = {"left": join.left.step, "right": join.right.step}
    for name in join.extended:
        number = "MONOTONICALLY_INCREASING_ID() AS __number"
        steps[name] = ctx.step("numbered", f"SELECT *, {number} FROM {steps[name]}")
    numbers = [f"{name[0]}.__number AS __{name}_number" for name in join.extended]
    step = join.join(steps["left"], steps["right"], numbers, ctx)
    counts = [count for name in join.extended for count in _match_counts_by_row(name)]
    return ctx.step("match_counts", f"SELECT *, {', '.join(counts)} FROM {step}")


def _match_counts_by_row(name: Name) -> list[str]:
    """Return the number of matches of a row, summed over its own pairs; NULL on all of them but the
    first.
    """
    other = "right" if name == "left" else "left"
    number = f"__{name}_number"
    first = f"ROW_NUMBER() OVER (PARTITION BY {number} ORDER BY {number}) = 1"
    counts = list[str]()
    for version, met in ((BEFORE, "was"), (AFTER, "is")):
        total = f"SUM(__{other}{version}) OVER (PARTITION BY {number})"
        counts.append(f"CASE WHEN {first} THEN COALESCE({total}, 0L) END AS __{name}_{met}")
    return counts
