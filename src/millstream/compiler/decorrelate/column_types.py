"""Ask the server for types: of a query's output, and of columns of enclosing queries.

The server can type a correlated subquery only if it stands alone. Replace each outer column by a
NULL of its type:

    SELECT o.total * c.factor FROM o    ->    SELECT o.total * CAST(NULL AS numeric) FROM o
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Expr, transform
from millstream.algebra.types import PgType
from millstream.compiler.clauses.with_queries import Ctes, text_with
from millstream.compiler.decorrelate.correlation import outer_columns
from millstream.compiler.decorrelate.scope import Scope

Types = Callable[[str], tuple[PgType, ...]]


def standalone_text(query: exp.Expression, ctes: Ctes, outer: Scope | None, types: Types) -> str:
    """Return the text of a query that the server can type: with its WITH queries, outer columns
    replaced by NULLs.
    """
    text = text_with(query, ctes)
    columns = outer_columns(query, outer) if outer else {}
    if outer is None or not columns:
        return text
    nulls = dict[tuple[str, str], str]()
    for column in columns.values():
        type_ = _column_type(column, ctes, outer, types)
        nulls[column.table, column.name] = f"CAST(NULL AS {type_.name})"

    def replace(node: exp.Expression) -> exp.Expression:
        null = nulls.get((node.table, node.name)) if isinstance(node, exp.Column) else None
        if not null:
            return node
        is_output = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        name = exp.Identifier(this=node.name, quoted=True)
        return exp.Alias(this=Expr(null).node, alias=name) if is_output else Expr(null).node

    return printed(transform(parsed(text), replace))


def outer_column_types(
    columns: Iterable[exp.Column], ctes: Ctes, scope: Scope, types: Types
) -> tuple[PgType, ...]:
    """Return the types of columns of `scope` or of the scopes around it."""
    return tuple(_column_type(column, ctes, scope, types) for column in columns)


def _column_type(column: exp.Column, ctes: Ctes, scope: Scope, types: Types) -> PgType:
    """Return the type of one column: select it alone from the FROM clause that provides it."""
    owner = scope.owner(column)
    assert owner is not None, f"nobody has {column}"
    assert owner.select is not None, f"{column} is of no query"
    bare = exp.Select(expressions=[exp.alias_(column.copy(), "c")])
    for part in ("from_", "joins"):
        bare.set(part, _copy_part(owner.select.args.get(part)))
    return types(standalone_text(bare, ctes, owner.outer, types))[0]


def _copy_part(
    part: exp.Expression | list[exp.Expression] | None,
) -> exp.Expression | list[exp.Expression] | None:
    if isinstance(part, list):
        return [node.copy() for node in part]
    return part.copy() if part else None
