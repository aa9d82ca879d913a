"""Conditions that look at how a value is written, where equal values are written differently.

    scale(n) = 1        true of 1.0 and not of 1.00, which are equal
    n + 1 > 2           true of both or of neither

Of a group by `n`, the second is true of all rows or of none. The first is not: it makes a
difference whether it is evaluated before the rows are grouped, or of the value that the group
shows. PostgreSQL evaluates it before, wherever it may.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, ref_of
from millstream.algebra.relation import (
    Aggregate,
    Expand,
    Filter,
    Join,
    Limit,
    Project,
    Relation,
    Scan,
    UnionAll,
    Window,
)
from millstream.algebra.table import SourceTable
from millstream.algebra.types import PgType
from millstream.algebra.wire import prints_alike
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import Unsupported

_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ,
)  # fmt: skip
# Operators with equal results for equal numbers, and choices among values.
_OF_NUMBERS = (exp.Add, exp.Sub, exp.Mul, exp.Neg)
_FUNCTIONS_OF_NUMBERS = frozenset({"abs", "ceil", "ceiling", "floor", "round", "sign", "trunc"})
_CHOICES = (exp.Paren, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)


def looks_at_writing(relation: Relation, condition: Expr, server: PlanningServer) -> bool:
    """True if a condition over the columns of a relation may be true of a value and false of an
    equal one.
    """
    types = {ref: column_type(relation, ref, server) for ref in condition.refs}
    unlike = {
        ref: type_ for ref, type_ in types.items() if type_ is None or not prints_alike(type_)
    }
    return any(
        not _is_compared(column, unlike[ref])
        for column in condition.tree.find_all(exp.Column)
        if (ref := ref_of(column)) in unlike
    )


def _is_compared(column: exp.Column, type_: PgType | None) -> bool:
    """True if a column is only compared, by its type's own equality and order."""
    number = type_ is not None and type_.base in ("numeric", "float4", "float8")
    parent = column.parent
    while isinstance(parent, _CHOICES) or (number and _is_of_numbers(parent)):
        assert parent is not None, "a parent of a kind"
        parent = parent.parent
    if isinstance(parent, exp.Is):
        return True
    compared = isinstance(parent, _COMPARISONS)
    return compared and parent is not None and parent.find(exp.Collate) is None


def _is_of_numbers(node: exp.Expr | None) -> bool:
    """True if a node has equal results for equal numbers."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _FUNCTIONS_OF_NUMBERS
    return isinstance(node, _OF_NUMBERS)


def column_type(relation: Relation, ref: Ref, server: PlanningServer) -> PgType | None:
    """Return the type of a column of a relation; None if it is not known before the blocks are
    made.
    """
    if isinstance(relation, UnionAll):
        types = zip(relation.columns, relation.types, strict=True)
        return next(type_ for column, type_ in types if column == ref)
    if isinstance(relation, Scan):
        column = relation.table.column(ref.column) if ref.alias == relation.alias else None
        return column.type if column else None
    if isinstance(relation, Filter):
        return column_type(relation.input, ref, server)
    if isinstance(relation, Join):
        side = next((side for side in relation.inputs if ref in side.columns), None)
        return column_type(side, ref, server) if side else None
    below, columns = _definitions(relation)
    expr = columns.get(ref)
    if below is None or expr is None:
        return None
    inner = expr.as_ref
    return column_type(below, inner, server) if inner else _computed_type(below, expr, server)


def _definitions(relation: Relation) -> tuple[Relation | None, Mapping[Ref, Expr]]:
    """Return the input of a relation, and its columns as expressions over it, as far as they are."""
    if isinstance(relation, Project):
        return relation.input, {
            Ref(relation.alias, output.name): output.expr for output in relation.outputs
        }
    if isinstance(relation, Aggregate):
        return relation.input, {Ref(relation.alias, key.name): key.expr for key in relation.keys}
    if isinstance(relation, Window | Expand | Limit):
        carried = zip(relation.columns, relation.input.columns, strict=False)
        return relation.input, {ref: Expr(below.sql) for ref, below in carried}
    return None, {}


def _computed_type(relation: Relation, expr: Expr, server: PlanningServer) -> PgType | None:
    """Return the type of an expression over a relation, which the server tells if it is over
    tables.
    """
    while not isinstance(relation, Scan):
        if isinstance(relation, Join):
            side = next((one for one in relation.inputs if expr.refs <= set(one.columns)), None)
            if side is None:
                return None
            relation = side
        elif isinstance(relation, Filter):
            relation = relation.input
        else:
            below, columns = _definitions(relation)
            if below is None or not expr.refs <= columns.keys():
                return None
            relation, expr = below, expr.substitute(columns)
    if not isinstance(relation.table, SourceTable):
        return None
    types = server.types([expr], [relation])
    return None if isinstance(types, Unsupported) else types[0]
