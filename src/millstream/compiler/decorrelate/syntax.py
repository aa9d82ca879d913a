"""Parts of a SELECT's syntax tree: its select list, its conjuncts, its parenthesized joins, its
window calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr, operands
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.decorrelate.scope import Scope


def select_expressions(select: exp.Select) -> list[exp.Expression]:
    """Return the select list without output names."""
    return [item.this if isinstance(item, exp.Alias) else item for item in select.expressions]


def is_bare_select(select: exp.Select, aggregates: Aggregates) -> bool:
    """Return True if a SELECT has a select list and no other clause, as `SELECT a.x + 1`: it has
    exactly one row.
    """
    has_clauses = any(
        value for name, value in select.args.items() if name not in ("expressions", "kind")
    )
    has_windows = any(item.find(exp.Window) for item in select.expressions)
    return not has_clauses and not has_windows and not aggregates.group(select)


def and_operands(node: exp.Expression) -> list[exp.Expression]:
    """Return the operands of an AND at any depth, as they are written."""
    return operands(node, exp.And)


def refers_to_earlier_items(join: exp.Join, scope: Scope) -> bool:
    """Return True if a parenthesized join contains a LATERAL and names an item of `scope`, which
    stands before it.

    Such parentheses can be removed. False if they cannot: the join is an outer one or has a
    condition, or a RIGHT or FULL JOIN is inside.
    """
    item = join.this
    if (
        join.side
        or join.args.get("on")
        or join.args.get("using")
        or not _is_parenthesized_join(item)
    ):
        return False
    names_earlier = any(scope.owner(column) is scope for column in item.find_all(exp.Column))
    preserves_right = any(inner.side in ("RIGHT", "FULL") for inner in unnest_join(item))
    return names_earlier and item.find(exp.Lateral) is not None and not preserves_right


def unnest_join(item: exp.Expression) -> list[exp.Join]:
    """Return the items of a parenthesized join as a list of joins, to be made one after the other."""
    joins = item.args.get("joins") or []
    if _is_parenthesized_join(item):
        return [*unnest_join(item.this), *joins]
    first = item.copy()
    first.set("joins", None)
    return [exp.Join(this=first), *joins]


def _is_parenthesized_join(item: exp.Expression) -> bool:
    is_query = isinstance(item.this, exp.Select | exp.SetOperation)
    return isinstance(item, exp.Subquery) and not item.alias and not is_query


def partition_windows(expression: Expr, keys: Sequence[Expr]) -> Expr:
    """Add keys to the PARTITION BY of each window call of an expression."""
    wrapper = exp.Paren(this=expression.node)
    for call in wrapper.find_all(exp.Window):
        partition_by = [*(call.args.get("partition_by") or ()), *(key.node for key in keys)]
        call.set("partition_by", partition_by)
    return Expr.of(wrapper.this)
