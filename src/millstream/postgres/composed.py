"""Compose SQL statements of parts that say what they are.

    sql.SQL           text that stands in this program
    sql.Identifier    a name; psycopg quotes it
    sql.Literal       a value; psycopg quotes it
    Printed           text that PostgreSQL or sqlglot printed: a query, an expression, the name of a type;
                      or a statement of these that psycopg has rendered

The first three are psycopg's. No other text becomes part of a statement.
"""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql
from psycopg.abc import AdaptContext


class Printed(sql.Composable):
    """SQL text that was printed from something parsed; never a name or a value from outside.

    >>> query = sql.SQL("SELECT {} FROM {}").format(Printed("a + 1"), sql.Identifier("t"))
    >>> print(query.as_string())
    SELECT a + 1 FROM "t"
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def as_bytes(self, context: AdaptContext | None = None) -> bytes:
        return sql.SQL(self._obj).as_bytes(context)


def printed_statement(text: str) -> sql.Composed:
    """Return a whole statement that PostgreSQL printed, to be executed."""
    return sql.Composed([Printed(text)])


def listed(parts: Iterable[sql.Composable]) -> sql.Composed:
    """Return the parts with commas between them."""
    return sql.SQL(", ").join(parts)


def all_of(conditions: Iterable[sql.Composable]) -> sql.Composed:
    """Return the conjunction of conditions, which must be in parentheses where AND would split them."""
    return sql.SQL(" AND ").join(conditions)


def one_of(conditions: Iterable[sql.Composable]) -> sql.Composed:
    """Return the disjunction of conditions, which must be in parentheses where OR would split them."""
    return sql.SQL(" OR ").join(conditions)


def union_all(queries: Iterable[sql.Composable]) -> sql.Composed:
    """Return a query of the rows of all these queries."""
    return sql.SQL(" UNION ALL ").join(queries)


def aliased(value: sql.Composable, name: str) -> sql.Composed:
    """Return a value with its name in a select list, or a FROM item with its alias."""
    return sql.SQL("{} AS {}").format(value, sql.Identifier(name))


def in_parentheses(part: sql.Composable) -> sql.Composed:
    """Return the part in parentheses."""
    return sql.SQL("({})").format(part)


def row_text(columns: Iterable[sql.Composable]) -> sql.Composed:
    """Return the expression for the exact text of a row of these columns."""
    return sql.SQL("ROW({})::text").format(listed(columns))
