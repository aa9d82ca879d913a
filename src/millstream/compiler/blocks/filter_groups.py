"""Filter rows before they are grouped, by the conditions on the keys of their groups.

    SELECT * FROM (SELECT DISTINCT id, (SELECT y FROM v WHERE v.k = t.id) AS x FROM t) AS q WHERE
    q.id < 50

    Filter  id < 50                                Filter  id < 50
      Aggregate  id, x                    ->         Aggregate  id, x
        t, the scalar subquery as x                    Filter  id < 50
                                                         t, the scalar subquery as x

A condition on keys alone is true of all rows of a group or of none, and PostgreSQL evaluates it
first. The result is the same, unless computing a group raises an error, as a scalar subquery of
several rows does, or `10 / x`. So the rule applies only where a group is computed by more than
columns; the rows of other groups are kept, for other readers too. The partitions of a window are
such groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, all_of, conjuncts
from millstream.algebra.relation import Aggregate, Filter, Join, Project, Relation, Window


def filter_groups_first(relation: Relation) -> Relation:
    """Return a relation whose topmost aggregates read only rows that the filters above them can
    keep.
    """
    return _with_conditions(relation, [])


def _with_conditions(relation: Relation, conditions: list[Expr]) -> Relation:
    """Pass on the conditions above a relation, over its columns: an inner one first, which may
    guard others.
    """
    if isinstance(relation, Filter):
        below = _with_conditions(relation.input, [*conjuncts(relation.predicate), *conditions])
        return replace(relation, input=below)
    if isinstance(relation, Project):
        outputs = {Ref(relation.alias, output.name): output.expr for output in relation.outputs}
        below = _with_conditions(
            relation.input, [condition.substitute(outputs) for condition in conditions]
        )
        return replace(relation, input=below)
    if isinstance(relation, Join):
        own = (
            list(conjuncts(relation.condition))
            if relation.kind == "inner" and relation.condition
            else []
        )
        left, right = (_of(side, [*own, *conditions]) for side in (relation.left, relation.right))
        below = (
            _with_conditions(relation.right, right) if relation.kind == "inner" else relation.right
        )
        kept = _with_conditions(relation.left, left) if relation.kind != "full" else relation.left
        return replace(relation, left=kept, right=below)
    if isinstance(relation, Aggregate):
        keys = {Ref(relation.alias, key.name): key.expr for key in relation.keys}
        arguments = (part for measure in relation.measures for part in measure.call.parts())
        return _filtered(relation, keys, [*keys.values(), *arguments], conditions)
    if isinstance(relation, Window):
        columns = zip(
            relation.columns, (Expr(ref.sql) for ref in relation.input.columns), strict=False
        )
        keys = {ref: expr for ref, expr in columns if expr in relation.keys}
        return _filtered(relation, keys, [call.expr for call in relation.calls], conditions)
    return relation


def _of(side: Relation, conditions: list[Expr]) -> list[Expr]:
    """Return the conditions over one side of a join alone."""
    columns = set(side.columns)
    return [condition for condition in conditions if condition.refs and condition.refs <= columns]


Grouped = TypeVar("Grouped", Aggregate, Window)


def _filtered(
    groups: Grouped, keys: Mapping[Ref, Expr], computed: Sequence[Expr], conditions: Sequence[Expr]
) -> Grouped:
    """Filter the input of groups by the conditions on their keys alone, if computing a group may
    raise an error.
    """
    own = [
        condition.substitute(keys)
        for condition in conditions
        if condition.refs and condition.refs <= keys.keys()
    ]
    there = (
        set(conjuncts(groups.input.predicate)) if isinstance(groups.input, Filter) else set[Expr]()
    )
    first = [
        condition for condition in own if not condition.has_subquery and condition not in there
    ]
    if not first or not (any(map(_may_raise, computed)) or _input_may_raise(groups.input)):
        return groups
    return replace(groups, input=Filter(groups.input, all_of(first)))


def _input_may_raise(relation: Relation) -> bool:
    """True if a projection below, before the next join or groups, may raise an error."""
    if isinstance(relation, Project) and any(
        _may_raise(output.expr) for output in relation.outputs
    ):
        return True
    return isinstance(relation, Filter | Project) and _input_may_raise(relation.input)


def _may_raise(expression: Expr) -> bool:
    """True if evaluating an expression may raise an error: it computes, converts, or calls a
    function.
    """
    return expression.has_subquery or expression.tree.find(*_RAISING) is not None


_RAISING = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Mod,
    exp.Neg,
    exp.Pow,
    exp.Cast,
    exp.Anonymous,
    exp.Substring,
)
