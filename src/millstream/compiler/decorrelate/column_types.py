"""Ask the server for types: of a query's columns, and of columns of the queries around it.

A subquery on its own is no query: what it is given by the rows around it stands there as a NULL of its type.

    SELECT o.total * c.factor FROM o    ->    SELECT o.total * CAST(NULL AS numeric) FROM o
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Expr, transform
from millstream.algebra.types import PgType
from millstream.compiler.clauses.with_queries import Ctes, text_with
from millstream.compiler.decorrelate.bindings import outer_columns
from millstream.compiler.decorrelate.scope import Scope

Types = Callable[[str], tuple[PgType, ...]]


def standalone_text(query: exp.Expression, ctes: Ctes, outer: Scope | None, types: Types) -> str:
    """The text of a query for the server to type: what it is given is NULL."""
    text = text_with(query, ctes)
    columns = outer_columns(query, outer) if outer else {}
    if outer is None or not columns:
        return text
    nulls = {
        (column.table, column.name): f"CAST(NULL AS {_type(column, ctes, outer, types).name})"
        for column in columns.values()
    }

    def null(node: exp.Expression) -> exp.Expression:
        found = nulls.get((node.table, node.name)) if isinstance(node, exp.Column) else None
        return Expr(found).node if found else node

    return printed(transform(parsed(text), null))


def outer_column_types(columns: Iterable[exp.Column], ctes: Ctes, scope: Scope, types: Types) -> tuple[PgType, ...]:
    """The types of columns of the queries around."""
    return tuple(_type(column, ctes, scope, types) for column in columns)


def _type(column: exp.Column, ctes: Ctes, scope: Scope, types: Types) -> PgType:
    owner = scope.owner(column)
    assert owner is not None, f"nobody has {column}"
    assert owner.select is not None, f"{column} is of no query"
    bare = exp.Select(expressions=[exp.alias_(column.copy(), "c")])
    for part in ("from_", "joins"):
        bare.set(part, _copied(owner.select.args.get(part)))
    return types(standalone_text(bare, ctes, owner.outer, types))[0]


def _copied(part: exp.Expression | list[exp.Expression] | None) -> exp.Expression | list[exp.Expression] | None:
    """A part of a query of one's own."""
    return [one.copy() for one in part] if isinstance(part, list) else part.copy() if part else None
