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
    clause = query.args.get("with_")
    if clause is None or scope is None:
        return query
    query = query.copy()
    for cte in list(query.args["with_"].expressions):
        if not outer_columns(cte.this, scope):
            continue
        if clause.args.get("recursive"):
            raise Unsupported.construct(
                "a recursive query that refers to a column of an outer query",
                reason="Millstream does not maintain it yet.",
                way_round=(
                    "Run the recursion for all values of that column, select the column in both terms, and join on it."
                ),
                node=cte,
            )
        cte.pop()
        query = _inline(query, cte)
    if not query.args["with_"].expressions:
        query.set("with_", None)
    return query


def _inline(query: exp.Expression, cte: exp.CTE) -> exp.Expression:
    cte_columns = [column.copy() for column in cte.args["alias"].columns]

    def replace(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Table) or node.db or node.name != cte.alias:
            return node
        table_alias = node.args.get("alias")
        renamed = table_alias.columns if table_alias else []
        columns = [*renamed, *cte_columns[len(renamed) :]]
        alias = exp.TableAlias(this=exp.to_identifier(node.alias_or_name, quoted=True), columns=columns)
        # transform does not descend into the replacement, so the joins that hang on this table are done here.
        joins = [transform(join, replace) for join in node.args.get("joins") or ()]
        return exp.Subquery(this=cte.this.copy(), alias=alias, joins=joins)

    return transform(query, replace)
