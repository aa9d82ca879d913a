"""Check that a scalar subquery has one row after the LIMIT, for the rows that are left.

    SELECT id, (SELECT y FROM u WHERE u.k = t.k) AS x FROM t ORDER BY id LIMIT 3

    Project  id, (SELECT v FROM generate_series(1, n)) AS x     raises an error where n > 1
      Limit  by id LIMIT 3
        Project  id, v AS x, v, n                               the first row of the subquery, and their number
          t left join the subquery

PostgreSQL evaluates such subqueries after it has sorted and limited the rows, unless it sorts by
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, parenthesised, transform
from millstream.algebra.relation import Named, Project, Relation
from millstream.compiler.placement.row_error import several_rows


def without_row_checks(
    relation: Relation, sorted_by: Iterable[Expr]
) -> tuple[Relation, Mapping[Ref, Expr]]:
    """Return a relation that raises no error, and for the columns that should, the expressions that
    do.

    The expressions are over the columns of the returned relation: those of the given one, and more
    after them.
    """
    ordering = {ref for expr in sorted_by for ref in expr.refs}
    relation = _merged(relation)
    if not isinstance(relation, Project):
        return relation, {}
    columns = dict(zip(relation.columns, relation.outputs, strict=True))
    checked = {
        ref: named.expr
        for ref, named in columns.items()
        if named.expr.has_subquery and ref not in ordering
    }
    if not checked:
        return relation, {}
    needed = dict.fromkeys(ref for expr in checked.values() for ref in sorted(expr.refs))
    names = {ref: f"checked_{number}" for number, ref in enumerate(needed)}
    outputs = [
        replace(named, expr=_unchecked(named.expr)) if ref in checked else named
        for ref, named in columns.items()
    ]
    outputs += [Named(name, Expr(ref.sql)) for ref, name in names.items()]
    carried = {ref: Expr.ref(relation.alias, name) for ref, name in names.items()}
    without = Project(relation.input, tuple(outputs), relation.alias)
    return without, {ref: expr.substitute(carried) for ref, expr in checked.items()}


def _merged(relation: Relation) -> Relation:
    """Merge a projection with those that it stands over."""
    while isinstance(relation, Project) and isinstance(relation.input, Project):
        below = {
            Ref(relation.input.alias, named.name): named.expr for named in relation.input.outputs
        }
        outputs = tuple(
            Named(named.name, named.expr.substitute(below)) for named in relation.outputs
        )
        relation = Project(relation.input.input, outputs, relation.alias)
    return relation


def _unchecked(expression: Expr) -> Expr:
    """Return the first row's value in place of each subquery that has to have one row."""

    def first_row(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Subquery) and several_rows(node) is not None:
            return parenthesised(node.this.expressions[0])
        return node

    return Expr.of(transform(expression.tree, first_row))
