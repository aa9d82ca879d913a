"""Filter rows before they are grouped, by the conditions on the keys of their groups.

    SELECT * FROM (SELECT DISTINCT id, (SELECT y FROM v WHERE v.k = t.id) AS x FROM t) AS q WHERE q.id < 50

    Filter  id < 50                                Filter  id < 50
      Aggregate  id, x                    ->         Aggregate  id, x
        t, the scalar subquery as x                    Filter  id < 50
                                                         t, the scalar subquery as x

A condition on keys alone is true of all rows of a group or of none, and PostgreSQL evaluates it first. The result is
the same, unless computing a group raises an error, as a scalar subquery of several rows does. So the rule applies only
where an aggregate computes such a subquery; the rows of all other groups are kept, for other readers too.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.algebra.expr import Expr, Ref, all_of, conjuncts
from millstream.algebra.relation import Aggregate, Filter, Join, Project, Relation


def filter_groups_first(relation: Relation) -> Relation:
    """Return a relation whose topmost aggregates read only rows that the filters above them can keep."""
    return _with_conditions(relation, [])


def _with_conditions(relation: Relation, conditions: list[Expr]) -> Relation:
    """Pass on the conditions above a relation; they are over its columns."""
    if isinstance(relation, Filter):
        below = _with_conditions(relation.input, [*conditions, *conjuncts(relation.predicate)])
        return replace(relation, input=below)
    if isinstance(relation, Project):
        outputs = {Ref(relation.alias, output.name): output.expr for output in relation.outputs}
        below = _with_conditions(relation.input, [condition.substitute(outputs) for condition in conditions])
        return replace(relation, input=below)
    if isinstance(relation, Join):
        own = list(conjuncts(relation.condition)) if relation.kind == "inner" and relation.condition else []
        left, right = (_of(side, [*conditions, *own]) for side in (relation.left, relation.right))
        below = _with_conditions(relation.right, right) if relation.kind == "inner" else relation.right
        kept = _with_conditions(relation.left, left) if relation.kind != "full" else relation.left
        return replace(relation, left=kept, right=below)
    if isinstance(relation, Aggregate):
        return _filtered(relation, conditions)
    return relation


def _of(side: Relation, conditions: list[Expr]) -> list[Expr]:
    """Return the conditions over one side of a join alone."""
    columns = set(side.columns)
    return [condition for condition in conditions if condition.refs and condition.refs <= columns]


def _filtered(aggregate: Aggregate, conditions: list[Expr]) -> Aggregate:
    keys = {Ref(aggregate.alias, key.name): key.expr for key in aggregate.keys}
    own = [condition.substitute(keys) for condition in conditions if condition.refs and condition.refs <= keys.keys()]
    there = set(conjuncts(aggregate.input.predicate)) if isinstance(aggregate.input, Filter) else set[Expr]()
    first = [condition for condition in own if not condition.has_subquery and condition not in there]
    if not first or not _computes_subquery(aggregate):
        return aggregate
    return replace(aggregate, input=Filter(aggregate.input, all_of(first)))


def _computes_subquery(aggregate: Aggregate) -> bool:
    """True if an aggregate computes a scalar subquery that may have several rows."""
    arguments = (part for measure in aggregate.measures for part in measure.call.parts())
    return any(expr.has_subquery for expr in (*(key.expr for key in aggregate.keys), *arguments)) or _projects_subquery(
        aggregate.input
    )


def _projects_subquery(relation: Relation) -> bool:
    if isinstance(relation, Project) and any(output.expr.has_subquery for output in relation.outputs):
        return True
    return isinstance(relation, Filter | Project) and _projects_subquery(relation.input)
