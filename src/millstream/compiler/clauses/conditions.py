"""Filter rows by the conditions of WHERE, HAVING and ON, with or without subqueries."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr, all_of, conjuncts
from millstream.algebra.relation import Filter, Relation
from millstream.compiler.decorrelate.attach import Host
from millstream.compiler.decorrelate.scope import ScopedRows, refuse_unresolved
from millstream.compiler.decorrelate.subqueries import Subqueries


def filter_rows(relation: Relation, conditions: Sequence[Expr]) -> Relation:
    """Return the rows for which all conditions are true; the relation itself if there are none."""
    parts = [part for condition in conditions for part in conjuncts(condition)]
    if not parts:
        return relation
    return Filter(relation, all_of(parts))


def filter_with_subqueries(
    rows: ScopedRows, conditions_with_subqueries: Sequence[exp.Expression], subqueries: Subqueries
) -> ScopedRows:
    """Return the rows for which conditions that contain subqueries are true."""
    host = Host(rows.rows, rows.scope)
    conditions = [subqueries.condition(part, host) for part in conditions_with_subqueries]
    joined = refuse_unresolved(lambda: host.apply_joins(rows.rows))
    return rows.over(filter_rows(joined, conditions))
