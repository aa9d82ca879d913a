"""The choices of the chain, in words: why a block is there. `explain` prints them.

A choice that follows from a refusal quotes it: the reason is that of the first strategy, which was
not possible.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.algebra.block import Block
from millstream.algebra.choice import Choice
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Measure
from millstream.errors import Unsupported

GROUPS = Choice(
    "stores a row for each group",
    "a later block reads the result of this GROUP BY or DISTINCT like a table",
)
DISTINCT_VALUES = Choice(
    "stores each value once for each group", "count, sum or avg of DISTINCT values reads these"
)
WINDOW = Choice(
    "stores the rows of each partition and recomputes each touched one",
    "PostgreSQL computes window functions, over all rows of a partition",
)
VALUES_OF_PAIRS = Choice(
    "stores each distinct value once",
    "PostgreSQL finds the pairs that satisfy a condition, and this table has no key to name its rows by",
)
FIRST_ROWS = Choice(
    "stores the first rows", "PostgreSQL selects them anew, from its one table in order"
)
RECURSION = Choice(
    "stores the rows of the recursion", "each step derives rows from those that it has already"
)
LIMIT_OF_A_JOIN = Choice(
    "stores the rows of a join or union", "LIMIT reads its first rows from one table, in order"
)
FUNCTION_OF_A_JOIN = Choice(
    "stores the rows of a join or union",
    "a set-returning function is called with columns of more than one table",
)
OPTIONAL_UNION = Choice(
    "stores the rows of a UNION ALL",
    "whether a row of the other side has a match depends on all its parts",
)


def printed_choices(blocks: Sequence[Block]) -> str:
    """Return the choices of a query's blocks, a line each."""
    lines = [f"{block.name}  {choice}" for block in blocks for choice in block.choices]
    return "\n".join(lines) or "none: one block, updated from changes alone"


def evaluated_by_postgresql(expressions: Sequence[Expr]) -> Choice:
    """Return why the join below some expressions is materialized."""
    listed = ", ".join(expr.sql for expr in expressions)
    return Choice(
        "stores the rows of a join", f"PostgreSQL evaluates over them what Spark cannot: {listed}"
    )


def pairs_by_postgresql(condition: Expr) -> Choice:
    """Return why the pairs that satisfy a condition are stored."""
    return Choice(
        "stores the pairs of rows that satisfy a condition",
        f"PostgreSQL evaluates it, also where it decides which rows have a match: {condition}",
    )


def keys_by_postgresql(refusal: Unsupported) -> Choice:
    """Return why the input of groups or partitions is materialized."""
    why = f"PostgreSQL computes keys over them that Spark cannot: {_quoted(refusal)}"
    return Choice("stores the rows of a join or union", why)


def lenient_arithmetic(refusal: Unsupported) -> Choice:
    """Return why a value of too many digits, or an expression that raises, may fail a refresh."""
    return Choice(
        "evaluates in Spark what may fail a refresh",
        f"there is no stricter way: {_quoted(refusal)}",
    )


def distinct_values_recomputed(refusal: Unsupported) -> Choice:
    """Return why distinct values have no block of their own."""
    why = f"no block can store each value once: {_quoted(refusal)}"
    return Choice(
        "recomputes aggregates of DISTINCT values over all rows of each touched group", why
    )


def holistic(measure: Measure, refusal: Unsupported | None) -> Choice:
    """Return why a measure is holistic: it is refused, or not of a form that changes alone can
    update.
    """
    why = "changes alone update only count, sum, avg, min and max of plain values"
    if refusal is not None:
        why = f"Spark cannot update it from changes alone: {_quoted(refusal)}"
    return Choice(f"recomputes {measure.call} over all rows of each touched group", why)


def drifting(measure: Measure) -> Choice:
    """Return why the groups of a floating-point sum are recomputed."""
    why = "floating-point sums drift if values are added and taken away"
    return Choice(f"recomputes each touched group for {measure.call}", why)


def _quoted(refusal: Unsupported) -> str:
    return f"{refusal.facts['construct']}. {refusal.detail}".strip()
