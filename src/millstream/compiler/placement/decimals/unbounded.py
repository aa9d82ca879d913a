"""Tell which numerics may have more digits after the point than Spark's decimals.

A column declared numeric(p,s) has s of them; one declared numeric, as a rule, what somebody typed. A quotient has as
many as PostgreSQL chose, so that 16 are significant: 1 / 3.0 has 20. Averages are quotients, and what is not known
to be plain is taken for one.

>>> endless(Expr.parse("x / 3"), lambda ref: False), endless(Expr.parse("round(x / 3, 2)"), lambda ref: False)
(True, False)
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
# With a number of digits, these cut; without, to a whole number.
_CUTTING = frozenset({"round", "trunc", "ceil", "ceiling", "floor", "sign", "scale", "div"})
_PASSING = frozenset({"abs", "greatest", "least", "nullif", "mod"})


def is_unbounded(expression: Expr, known: Callable[[Ref], bool]) -> bool:
    """May a value of it have more digits than its operands?"""
    return _unbounded(expression.tree, known)


def unbounded_columns(flats: Sequence[FlatBranch], wanted: Iterable[Ref]) -> set[Ref]:
    """Those of some branches' columns that may."""
    atoms = [BranchNames(flat.region) for flat in flats]
    return {
        ref
        for ref in wanted
        for flat, own in zip(flats, atoms, strict=True)
        if is_unbounded(own.expanded(flat.outputs[ref]), partial(is_unbounded_column, own.scans))
    }


def is_unbounded_column(scans: Mapping[str, Scan], ref: Ref) -> bool:
    """Is a column of a table such a one?"""
    return ref.alias in scans and ref.column in scans[ref.alias].table.unbounded


def unbounded_group_columns(aggregate: Aggregate) -> frozenset[str]:
    """The columns of an aggregate's groups that may."""
    below = unbounded_columns(flatten(aggregate.input), aggregate.refs())
    keys = {key.name for key in aggregate.keys if is_unbounded(key.expr, below.__contains__)}
    return frozenset(keys | {one.name for one in aggregate.measures if _endless_call(one.call, below)})


def unbounded_window_columns(window: Window) -> frozenset[str]:
    """The columns of a window's rows that may."""
    below = unbounded_columns(flatten(window.input), window.input.columns)
    exprs = [*(Expr(ref.sql) for ref in window.input.columns), *(call.expr for call in window.calls)]
    return frozenset(
        name for name, expr in zip(window.names, exprs, strict=True) if is_unbounded(expr, below.__contains__)
    )


def _endless_call(call: Call, below: set[Ref]) -> bool:
    if call.text is not None or call.function == "avg":
        return True
    return call.function != "count" and call.argument is not None and is_unbounded(call.argument, below.__contains__)


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
    """Is it cast to numeric(p,s), or to a type that has no digits after the point?"""
    to = node.args.get("to")
    if not isinstance(node, exp.Cast) or not isinstance(to, exp.DataType):
        return False
    return bool(to.expressions) or to.this != exp.DType.DECIMAL
