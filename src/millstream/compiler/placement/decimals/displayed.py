"""Compute the displayed scale of a numeric row by row, if its type does not declare it.

PostgreSQL keeps the scale of each value: 1.50 + 2 is 3.50. Spark's decimal has one scale for a whole column, so the
scale travels beside the number. It follows PostgreSQL's rules, as in `declared.py`:

    a + b, a - b    the larger scale          a * b    the sum of the scales
    CASE, COALESCE  the scale of the alternative that is chosen
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import Expr, unwrapped
from millstream.algebra.wire import wire_of
from millstream.compiler.placement.decimals.declared import digits_of, digits_of_type
from millstream.compiler.placement.place import Placer
from millstream.compiler.placement.placement import INT4, Placement
from millstream.compiler.placement.spark_exact import children


def displayed_scale(placer: Placer, expression: Expr, placed: Placement) -> Placement | None:
    """Return the displayed scale of a numeric, row by row; None if its type or operands declare it."""
    digits = digits_of(placer.atoms.expanded(expression), placer.digits)
    if placed.wire.number != "decimal" or (digits is not None and digits.after == placed.wire.scale):
        return None
    if not placer.single(expression):
        shown = f"CASE WHEN ({placed.expr.sql}) IS NOT NULL THEN {_scale(placer, expression.node)} END"
        return Placement(Expr.parse(shown), wire_of(INT4), INT4)
    return displayed_scale_leaf(placer, expression) if placer.types[expression].scale is None else None


def displayed_scale_leaf(placer: Placer, expression: Expr) -> Placement:
    """Return the displayed scale of an expression over one table, which PostgreSQL computes while reading."""
    told = Expr.parse(f"scale({expression.sql})")
    placer.types[told] = INT4
    return placer.place(told, "carry")


def _scale(placer: Placer, node: exp.Expression) -> str:
    """Return Spark's expression for the scale of a value that is not NULL, by PostgreSQL's rules."""
    node = unwrapped(node)
    expression = Expr.of(node)
    if placer.single(expression):
        digits = digits_of_type(placer.types[expression])
        return str(digits.after) if digits else displayed_scale_leaf(placer, expression).expr.sql
    if (ref := expression.as_ref) is not None:
        return _scale(placer, placer.atoms.definition(ref).node)
    if isinstance(node, exp.Case):
        return _scale_of_case(placer, node)
    if isinstance(node, exp.Coalesce):
        ifs = [f"WHEN ({placer.place(Expr.of(v), 'number').expr.sql}) IS NOT NULL THEN {_scale(placer, v)}"
               for v in (node.this, *node.expressions)]  # fmt: skip
        return f"CASE {' '.join(ifs)} END"
    first, *operators = placer.chain(node)
    chained = [first, *(one.expression for one in operators)] if operators else children(node)
    parts = [_scale(placer, child) for child in chained]
    if isinstance(node, exp.Mul):
        return f"({' + '.join(parts)})"
    return f"greatest({', '.join(parts)})" if len(parts) > 1 else parts[0]


def _scale_of_case(placer: Placer, node: exp.Case) -> str:
    ifs = [
        f"WHEN {placer.place(Expr.of(branch.this), 'carry').expr.sql} THEN {_scale(placer, branch.args['true'])}"
        for branch in node.args["ifs"]
    ]
    default = node.args.get("default")
    return f"CASE {' '.join(ifs)}{f' ELSE {_scale(placer, default)}' if default is not None else ''} END"
