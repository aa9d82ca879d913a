"""Inline correlated WITH queries.

A WITH query of a subquery may refer to outer columns; its rows then differ for each of their
values. Write it as a subquery in each place that names it, so that every use joins the bindings by
itself.

    LATERAL (WITH x AS (SELECT u.b FROM u WHERE u.a > t.a) SELECT count(*) FROM x)
    LATERAL (SELECT count(*) FROM (SELECT u.b FROM u WHERE u.a > t.a) AS x)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from sqlglot import exp

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
    # A WITH query that names an inlined one becomes correlated by that, so each is looked for in
    # the new tree.
    while (cte := _first_correlated(query.args["with_"], scope)) is not None:
        if query.args["with_"].args.get("recursive"):
            raise _refuse_recursive(cte)
        _inline(query, cte)
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
        way_round=(
            "Run the recursion for all values of that column, select the column in both terms, and join on it."
        ),
        node=cte,
    )


def _inline(query: exp.Expression, cte: exp.CTE) -> None:
    """Replace each table that names a WITH query by the query."""
    uses = _uses(query, cte)
    for use in uses:
        _rename_what_would_capture(query, cte, use)
    cte.pop()
    for use in uses:
        # The joins that hang on a table stay in the tree, with the uses in them.
        joins = [join.pop() for join in use.args.get("joins") or ()]
        use.replace(exp.Subquery(this=cte.this.copy(), alias=_alias(use, cte), joins=joins))


def _uses(query: exp.Expression, cte: exp.CTE) -> list[exp.Table]:
    """Return the tables of a query that name a WITH query."""
    return [table for table in query.find_all(exp.Table) if next(_named(table, table), None) is cte]


def _named(place: exp.Expression, table: exp.Table) -> Iterator[exp.CTE]:
    """Yield the WITH queries that would have the name of a table at a place, the innermost first."""
    if table.db or not isinstance(table.this, exp.Identifier):
        return
    node = place
    while isinstance(node.parent, exp.Expression):
        yield from (cte for cte in _visible(node.parent, node) if cte.alias == table.name)
        node = node.parent


def _visible(parent: exp.Expression, child: exp.Expression) -> list[exp.CTE]:
    """Return the WITH queries that a node defines and one of its children may use."""
    if isinstance(parent, exp.With):
        # Without RECURSIVE, a WITH query sees those before it.
        place = next(n for n, cte in enumerate(parent.expressions) if cte is child)
        seen = parent.expressions if parent.args.get("recursive") else parent.expressions[:place]
        return list(seen)
    clause = parent.args.get("with_")
    return list(clause.expressions) if clause is not None and clause is not child else []


def _rename_what_would_capture(query: exp.Expression, cte: exp.CTE, use: exp.Table) -> None:
    """Rename the WITH queries around a use that have a name by which the inlined query means
    another.
    """
    for table in list(cte.this.find_all(exp.Table)):
        meant = next(_named(table, table), None)
        if meant is not None and cte in _ancestors(meant):
            continue
        for other in list(_named(use, table)):
            if other is meant:
                break
            if other is not cte:
                _rename(query, other)


def _ancestors(node: exp.Expression) -> Iterator[exp.Expression]:
    while isinstance(node.parent, exp.Expression):
        node = node.parent
        yield node


def _rename(query: exp.Expression, cte: exp.CTE) -> None:
    """Give a WITH query a name that nothing else in a query has; its uses keep theirs as aliases."""
    taken = {table.name for table in query.find_all(exp.Table)} | {
        one.alias for one in query.find_all(exp.CTE)
    }
    name = next(name for n in count(1) if (name := f"{cte.alias}_{n}") not in taken)
    for use in _uses(query, cte):
        if not use.alias:
            use.set("alias", exp.TableAlias(this=use.this.copy()))
        use.set("this", exp.to_identifier(name, quoted=True))
    cte.args["alias"].set("this", exp.to_identifier(name, quoted=True))


def _alias(table: exp.Table, cte: exp.CTE) -> exp.TableAlias:
    """Return the alias of a use of a WITH query: its column names are those of the use, then those
    of the query.
    """
    own = table.args["alias"].columns if table.args.get("alias") else []
    columns = [*own, *(column.copy() for column in cte.args["alias"].columns[len(own) :])]
    return exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True), columns=columns)
