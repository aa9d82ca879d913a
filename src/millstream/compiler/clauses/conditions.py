"""Filter rows by the conditions of WHERE, HAVING and ON, with or without subqueries."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr, conjuncts
from millstream.algebra.relation import Filter, Relation
from millstream.compiler.decorrelate.attach import Host
from millstream.compiler.decorrelate.scope import Scope, refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries


def filter_rows(relation: Relation, conditions: Sequence[Expr]) -> Relation:
    """Return the rows for which all conditions are true; the relation itself if there are none."""
    parts = [part for condition in conditions for part in conjuncts(condition)]
    if not parts:
        return relation
    return Filter(relation, Expr.parse(" AND ".join(f"({part.sql})" for part in parts)) if len(parts) > 1 else parts[0])


def filter_with_subqueries(
    relation: Relation, conditions_with_subqueries: Sequence[exp.Expression], scope: Scope, subqueries: Subqueries
) -> Relation:
    """Return the rows for which conditions that contain subqueries are true."""
    host = Host(relation, scope)
    conditions = [subqueries.condition(part, host) for part in conditions_with_subqueries]
    return filter_rows(refuse_unresolved(lambda: host.apply_joins(relation)), conditions)
