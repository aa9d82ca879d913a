"""Inline correlated WITH queries.

A WITH query of a subquery may refer to outer columns; its rows then differ for each of their values. Write it as a
subquery in each place that names it, so that every use joins the bindings by itself.

    LATERAL (WITH x AS (SELECT u.b FROM u WHERE u.a > t.a) SELECT count(*) FROM x)
    LATERAL (SELECT count(*) FROM (SELECT u.b FROM u WHERE u.a > t.a) AS x)
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import transform
from millstream.compiler.decorrelate.correlation import outer_columns
from millstream.compiler.decorrelate.scope import Scope
from millstream.errors import Unsupported


def inline_correlated_with(query: exp.Expression, scope: Scope | None) -> exp.Expression:
    """Return a query with each WITH query that refers to columns of `scope` inlined.

    Raise Unsupported if such a WITH query is recursive.
    """
    if scope is None or query.args.get("with_") is None:
        return query
    query = query.copy()
    # A WITH query that names an inlined one becomes correlated by that, so each is looked for in the new tree.
    while (cte := _first_correlated(query.args["with_"], scope)) is not None:
        if query.args["with_"].args.get("recursive"):
            raise _refuse_recursive(cte)
        cte.pop()
        query = _inline(query, cte)
    if not query.args["with_"].expressions:
        query.set("with_", None)
    return query


def _first_correlated(clause: exp.With, scope: Scope) -> exp.CTE | None:
    """Return the first WITH query of a clause that refers to columns of `scope`."""
    return next((cte for cte in clause.expressions if outer_columns(cte.this, scope)), None)


def _refuse_recursive(cte: exp.CTE) -> Unsupported:
    """Return the refusal of a recursive WITH query that refers to outer columns."""
    return Unsupported.construct(
        "a recursive query that refers to a column of an outer query",
        reason="Millstream does not maintain it yet.",
        way_round=("Run the recursion for all values of that column, select the column in both terms, and join on it."),
        node=cte,
    )


def _inline(query: exp.Expression, cte: exp.CTE) -> exp.Expression:
    """Replace each table that names a WITH query by the query."""

    def replace(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Table) or node.db or node.name != cte.alias or _is_shadowed(node):
            return node
        # transform does not descend into the replacement, so the joins that hang on this table are done here.
        joins = [transform(join, replace) for join in node.args.get("joins") or ()]
        return exp.Subquery(this=cte.this.copy(), alias=_alias(node, cte), joins=joins)

    return transform(query, replace)


def _is_shadowed(table: exp.Table) -> bool:
    """Return True if a WITH clause around a table, inside the query, gives its name to another query."""
    node: exp.Expression = table
    while isinstance(node.parent, exp.Expression):
        parent = node.parent
        if table.name in _visible_names(parent, node):
            return True
        node = parent
    return False


def _visible_names(parent: exp.Expression, child: exp.Expression) -> list[str]:
    """Return the names of the WITH queries that a node defines and one of its children may use."""
    if isinstance(parent, exp.With):
        # Without RECURSIVE, a WITH query sees those before it.
        place = next(n for n, cte in enumerate(parent.expressions) if cte is child)
        seen = parent.expressions if parent.args.get("recursive") else parent.expressions[:place]
        return [cte.alias for cte in seen]
    clause = parent.args.get("with_")
    return [cte.alias for cte in clause.expressions] if clause is not None and clause is not child else []


def _alias(table: exp.Table, cte: exp.CTE) -> exp.TableAlias:
    """Return the alias of a use of a WITH query: its column names are those of the use, then those of the query."""
    own = table.args["alias"].columns if table.args.get("alias") else []
    columns = [*own, *(column.copy() for column in cte.args["alias"].columns[len(own) :])]
    return exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True), columns=columns)
