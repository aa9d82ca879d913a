"""Where the subqueries of an expression stand, each with the operator that asks about it."""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import unwrapped
from millstream.compiler.clauses.values import not_constant
from millstream.compiler.decorrelate.bindings import and_operands, outer_columns
from millstream.compiler.decorrelate.scope import Scope


def outermost_subqueries(node: exp.Expression) -> list[exp.Expression]:
    """The outermost subqueries in an expression, with the operator that asks about them."""
    found = list[exp.Expression]()
    for child in node.iter_expressions():
        if isinstance(child, exp.Values) and child.find(exp.Select):
            raise not_constant()
        if isinstance(child, exp.Exists | exp.Subquery) or _asks(child):
            found.append(child)
        else:
            found += outermost_subqueries(child)
    return found


def _asks(node: exp.Expression) -> bool:
    """Is it IN, ANY or ALL of a subquery?"""
    if isinstance(node, exp.In):
        return bool(node.args.get("query"))
    if not isinstance(node, exp.Binary) or not isinstance(node.expression, exp.Any | exp.All):
        return False
    return isinstance(unwrapped(node.expression.this), exp.Select | exp.Subquery | exp.SetOperation)


def has_subquery(node: exp.Expression) -> bool:
    """Is there a subquery in it?"""
    return bool(outermost_subqueries(exp.Paren(this=node.copy())))


def has_plain_correlation(select: exp.Select, scope: Scope) -> bool:
    """Does it mention the row around it in conjuncts of its WHERE alone, or plainly in its select list?"""
    rest = select.copy()
    where = rest.args.get("where")
    asking = [part.copy() for part in and_operands(where.this) if has_subquery(part)] if where else []
    rest.set("where", exp.Where(this=exp.and_(*asking)) if asking else None)
    rest.set("expressions", [one for one in rest.expressions if has_subquery(one)])
    return not outer_columns(rest, scope)
