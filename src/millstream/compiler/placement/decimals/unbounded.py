"""Find the numerics that may have more digits after the point than Spark's decimals.

A column declared numeric(p,s) has s of them; a column declared numeric usually has as many as
somebody typed. A quotient has as many as PostgreSQL chooses for 16 significant digits: 1 / 3.0 has
20. Averages are quotients, and an unknown function is treated as one.

>>> [is_unbounded(Expr.parse(text), lambda ref: False) for text in ("x / 3", "round(x / 3, 2)")]
[True, False]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, ref_of, unwrapped
from millstream.algebra.relation import Aggregate, Call, Scan, Window
from millstream.compiler.blocks.flatten import FlatBranch, flatten
from millstream.compiler.blocks.region import BranchNames

_QUOTIENTS = (exp.Div, exp.Pow, exp.Avg)
# Functions that round to a number of digits, or to a whole number.
_CUTTING = frozenset({"round", "trunc", "ceil", "ceiling", "floor", "sign", "scale", "div"})
_PASSING = frozenset({"abs", "greatest", "least", "nullif", "mod"})


def is_unbounded(expression: Expr, known: Callable[[Ref], bool]) -> bool:
    """True if a value of an expression may have more digits than its operands; `known` tells it of
    columns.
    """
    return _unbounded(expression.tree, known)


def unbounded_columns(flats: Sequence[FlatBranch], wanted: Iterable[Ref]) -> set[Ref]:
    """Return the unbounded columns among the outputs of some branches."""
    branch_names = [BranchNames(flat.region) for flat in flats]
    return {
        ref
        for ref in wanted
        for flat, own in zip(flats, branch_names, strict=True)
        if is_unbounded(own.expanded(flat.outputs[ref]), partial(is_unbounded_column, own.scans))
    }


def is_unbounded_column(scans: Mapping[str, Scan], ref: Ref) -> bool:
    """True if a column of a table is unbounded."""
    return ref.alias in scans and ref.column in scans[ref.alias].table.unbounded


def unbounded_group_columns(aggregate: Aggregate) -> frozenset[str]:
    """Return the unbounded columns of an aggregate."""
    below = unbounded_columns(flatten(aggregate.input), aggregate.refs())
    keys = {key.name for key in aggregate.keys if is_unbounded(key.expr, below.__contains__)}
    return frozenset(
        keys
        | {
            measure.name
            for measure in aggregate.measures
            if _is_unbounded_call(measure.call, below)
        }
    )


def unbounded_window_columns(window: Window) -> frozenset[str]:
    """Return the unbounded columns of a window."""
    below = unbounded_columns(flatten(window.input), window.input.columns)
    exprs = [
        *(Expr(ref.sql) for ref in window.input.columns),
        *(call.expr for call in window.calls),
    ]
    return frozenset(
        name
        for name, expr in zip(window.names, exprs, strict=True)
        if is_unbounded(expr, below.__contains__)
    )


def _is_unbounded_call(call: Call, below: set[Ref]) -> bool:
    if call.text is not None or call.function == "avg":
        return True
    return (
        call.function != "count"
        and call.argument is not None
        and is_unbounded(call.argument, below.__contains__)
    )


def _unbounded(node: exp.Expression, known: Callable[[Ref], bool]) -> bool:
    node = unwrapped(node)
    if isinstance(node, exp.Column):
        return known(ref_of(node))
    if _is_declared(node):
        return False
    if isinstance(node, _QUOTIENTS):
        return True
    if isinstance(node, exp.Anonymous) and node.name.lower() not in _PASSING:
        return node.name.lower() not in _CUTTING
    return any(_unbounded(child, known) for child in node.iter_expressions())


def _is_declared(node: exp.Expression) -> bool:
    """True if a node is a cast to numeric(p,s), or to a type without digits after the point."""
    to = node.args.get("to")
    if not isinstance(node, exp.Cast) or not isinstance(to, exp.DataType):
        return False
    return bool(to.expressions) or to.this != exp.DType.DECIMAL
