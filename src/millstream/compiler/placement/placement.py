"""The placement of an expression: what Spark computes over leaf columns, and how the result
travels.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, ref_of, unwrapped
from millstream.algebra.table import literal as string_constant
from millstream.algebra.types import PgType
from millstream.algebra.wire import Wire
from millstream.compiler.server.questions import Constant
from millstream.compiler.workaround import TWO_STEPS
from millstream.errors import Unsupported

BOOL = PgType(16, "boolean", "bool")
TEXT = PgType(25, "text", "text")
INT4 = PgType(23, "integer", "int4")
NUMERIC = PgType(1700, "numeric", "numeric")


@dataclass(frozen=True)
class Placement:
    """Spark's expression over leaf columns, how its value travels, and its type."""

    expr: Expr
    wire: Wire
    type: PgType | None
    """PostgreSQL's type; None for a result that only Spark has, such as a product."""


def leaf_ref(placed: Placement) -> Ref | None:
    """Return the leaf column that a placement is; None if Spark computes something."""
    node = unwrapped(placed.expr.tree)
    return ref_of(node) if isinstance(node, exp.Column) else None


def literal(value: Constant, wire: Wire) -> Expr:
    """Return a travelling value as a constant for Spark."""
    if value is None:
        return Expr.parse(f"CAST(NULL AS {_SPARK_TO_SQL.get(wire.spark, wire.spark)})")
    if isinstance(value, bool):
        return Expr("TRUE" if value else "FALSE")
    text = string_constant(str(value)) if isinstance(value, str | float) else str(value)
    return Expr.parse(f"CAST({text} AS {_SPARK_TO_SQL.get(wire.spark, wire.spark)})")


# PostgreSQL's names of Spark's types: an Expr is written in PostgreSQL's SQL.
_SPARK_TO_SQL = {"string": "text", "double": "double precision", "float": "real"}


def refuse_across_tables(expression: Expr, reason: str = "") -> Unsupported:
    """Return the refusal of an expression over several tables."""
    tables = ", ".join(sorted(expression.aliases))
    return Unsupported.construct(
        f"the expression {expression} over several tables ({tables})",
        reason=reason or "Spark does not compute it exactly as PostgreSQL does.",
        way_round=TWO_STEPS,
        node=expression,
    )


def refuse_before_join(expression: Expr) -> Unsupported:
    """Return the refusal of an expression that may raise for rows that a join discards."""
    return Unsupported.construct(
        f"the expression {expression} before a join",
        reason="It may raise an error for a row that is not in the result.",
        way_round=TWO_STEPS,
        node=expression,
    )


def refuse_number(expression: Expr, type_: PgType) -> Unsupported:
    """Return the refusal of arithmetic on a type that Spark has no exact number for."""
    return Unsupported.construct(
        f"arithmetic on {expression} of type {type_.name}",
        reason="Spark has no type that computes with it exactly.",
        way_round=TWO_STEPS,
        node=expression,
    )


def refuse_row(expression: Expr) -> Unsupported:
    """Return the refusal of an anonymous row that is used as a value."""
    return Unsupported.construct(
        f"the anonymous row {expression} as a value",
        reason="No column of a table has the type of a ROW(...) that is not cast.",
        way_round="Cast the row to a composite type of yours (CREATE TYPE), or select its columns one by one.",
        node=expression,
    )
