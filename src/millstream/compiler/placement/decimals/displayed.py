"""Compute the displayed scale of a numeric row by row, if its type does not declare it.

PostgreSQL keeps the scale of each value: 1.50 + 2 is 3.50. Spark's decimal has one scale for a
whole column, so the scale travels beside the number. It follows PostgreSQL's rules, as in
`declared.py`:

    a + b, a - b    the larger scale          a * b    the sum of the scales
    CASE, COALESCE  the scale of the alternative that is chosen
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import Expr, unwrapped
from millstream.algebra.wire import wire_of
from millstream.compiler.placement.decimals.attempt import Attempt, Attempts
from millstream.compiler.placement.decimals.declared import digits_of, digits_of_type
from millstream.compiler.placement.place import Placer
from millstream.compiler.placement.placement import INT4, Placement
from millstream.compiler.placement.spark_exact import children
from millstream.compiler.refusal import collect
from millstream.errors import Unsupported


def displayed_scale(
    placer: Placer, expression: Expr, placed: Placement
) -> Placement | Unsupported | None:
    """Return the displayed scale of a numeric, row by row; None if its type or operands declare it."""
    digits = digits_of(placer.branch_names.expanded(expression), placer.digits)
    if placed.wire.number != "decimal" or (
        digits is not None and digits.after == placed.wire.scale
    ):
        return None
    if placer.is_over_one_table(expression):
        return (
            displayed_scale_leaf(placer, expression)
            if placer.types[expression].scale is None
            else None
        )
    scale = _scale(placer, expression.node)
    if isinstance(scale, Unsupported):
        return scale
    shown = f"CASE WHEN ({placed.expr.sql}) IS NOT NULL THEN {scale} END"
    return Placement(Expr.parse(shown), wire_of(INT4), INT4)


def displayed_scale_leaf(placer: Placer, expression: Expr) -> Placement | Unsupported:
    """Return the displayed scale of an expression over one table, which PostgreSQL computes while
    reading.
    """
    told = Expr.parse(f"scale({expression.sql})")
    placer.types[told] = INT4
    return placer.place(told, "carry")


def _scale(placer: Placer, node: exp.Expression) -> str | Unsupported:
    """Return Spark's expression for the scale of a value that is not NULL, by PostgreSQL's rules."""
    node = unwrapped(node)
    expression = Expr.of(node)
    if placer.is_over_one_table(expression):
        digits = digits_of_type(placer.types[expression])
        return str(digits.after) if digits else _sql(displayed_scale_leaf(placer, expression))
    if (ref := expression.as_ref) is not None:
        return _scale(placer, placer.branch_names.definition(ref).node)
    if isinstance(node, exp.Case):
        return _scale_of_case(placer, node)
    if isinstance(node, exp.Coalesce):
        return _scale_of_coalesce(placer, node)
    first, *operators = placer.chain(node)
    chained = [first, *(one.expression for one in operators)] if operators else children(node)
    parts = collect(_scale(placer, child) for child in chained)
    if isinstance(parts, Unsupported):
        return parts
    if isinstance(node, exp.Mul):
        return f"({' + '.join(parts)})"
    return f"greatest({', '.join(parts)})" if len(parts) > 1 else parts[0]


def _scale_of_coalesce(placer: Placer, node: exp.Coalesce) -> str | Unsupported:
    values = (node.this, *node.expressions)
    ifs = collect(_when(_is_present(placer, value), _scale(placer, value)) for value in values)
    return ifs if isinstance(ifs, Unsupported) else f"CASE {' '.join(ifs)} END"


def _scale_of_case(placer: Placer, node: exp.Case) -> str | Unsupported:
    branches, default = node.args["ifs"], node.args.get("default")
    whens = [
        (_sql(placer.place(Expr.of(branch.this), "carry")), _scale(placer, branch.args["true"]))
        for branch in branches
    ]
    ifs = collect(_when(condition, scale) for condition, scale in whens)
    otherwise = _scale(placer, default) if default is not None else ""
    if isinstance(ifs, Unsupported) or isinstance(otherwise, Unsupported):
        return ifs if isinstance(ifs, Unsupported) else otherwise
    return f"CASE {' '.join(ifs)}{f' ELSE {otherwise}' if otherwise else ''} END"


def _is_present(placer: Placer, node: exp.Expression) -> str | Unsupported:
    tried = Attempts(placer).of(node)
    if isinstance(tried, Attempt):
        return tried.present
    placed = placer.place(Expr.of(node), "number")
    return placed if isinstance(placed, Unsupported) else f"({placed.expr.sql}) IS NOT NULL"


def _when(condition: str | Unsupported, scale: str | Unsupported) -> str | Unsupported:
    if isinstance(condition, Unsupported) or isinstance(scale, Unsupported):
        return condition if isinstance(condition, Unsupported) else scale
    return f"WHEN {condition} THEN {scale}"


def _sql(placed: Placement | Unsupported) -> str | Unsupported:
    return placed if isinstance(placed, Unsupported) else placed.expr.sql
