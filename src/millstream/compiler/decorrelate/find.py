"""Find the subqueries of an expression, each with the operator it belongs to (EXISTS, IN, ANY,
ALL).
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import unwrapped
from millstream.compiler.clauses.values import not_constant
from millstream.compiler.decorrelate.correlation import outer_columns
from millstream.compiler.decorrelate.scope import Scope
from millstream.compiler.decorrelate.syntax import and_operands


def outermost_subqueries(node: exp.Expression) -> list[exp.Expression]:
    """Return the outermost subqueries below a node, each with its operator: `x IN (q)` as a whole,
    not `(q)`.
    """
    subqueries = list[exp.Expression]()
    for child in node.iter_expressions():
        if isinstance(child, exp.Values) and (query := child.find(exp.Select)):
            raise not_constant(query)
        if isinstance(child, exp.Exists | exp.Subquery) or _is_quantified_subquery(child):
            subqueries.append(child)
        else:
            subqueries += outermost_subqueries(child)
    return subqueries


def _is_quantified_subquery(node: exp.Expression) -> bool:
    """Return True for IN, ANY or ALL over a subquery; False over a list or an array."""
    if isinstance(node, exp.In):
        return bool(node.args.get("query"))
    if not isinstance(node, exp.Binary) or not isinstance(node.expression, exp.Any | exp.All):
        return False
    return isinstance(unwrapped(node.expression.this), exp.Select | exp.Subquery | exp.SetOperation)


def has_subquery(node: exp.Expression) -> bool:
    """Return True if an expression is or contains a subquery."""
    return bool(outermost_subqueries(exp.Paren(this=node.copy())))


def has_plain_correlation(select: exp.Select, scope: Scope) -> bool:
    """Return True if outer columns occur only in conjuncts of WHERE and in select items, outside
    their subqueries.
    """
    remainder = select.copy()
    where = remainder.args.get("where")
    conjuncts = and_operands(where.this) if where else []
    with_subqueries = [part.copy() for part in conjuncts if has_subquery(part)]
    remainder.set("where", exp.Where(this=exp.and_(*with_subqueries)) if with_subqueries else None)
    remainder.set("expressions", [item for item in remainder.expressions if has_subquery(item)])
    return not outer_columns(remainder, scope)
