"""PostgreSQL as the server prints it: read and written word for word.

sqlglot translates between dialects, so it rewrites what it knows: substr() becomes SUBSTRING(... FROM ...), mod(x, 2)
becomes x % 2. The server's own words must come out as they went in. Here only the aggregates that we maintain and what
has a grammar of its own are understood; every other function is a name and its arguments.

>>> printed(parsed("SELECT substr(t, 1), mod(x, 2), \\"left\\"(t, 1)"))
'SELECT substr(t, 1), mod(x, 2), "left"(t, 1)'
"""

from __future__ import annotations

# sqlglot's callables differ in their parameters, and are only passed on.
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

_UNDERSTOOD = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", "COALESCE"})
_GRAMMAR = frozenset({"CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM"})


class Verbatim(Postgres):
    """The dialect of `pg_get_viewdef`."""

    NORMALIZE_FUNCTIONS: bool | str = False
    # An array's subscript is printed as it was read; sqlglot would shift it and guess when to shift back.
    INDEX_OFFSET = 0

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            name: made for name, made in PostgresParser.FUNCTIONS.items() if name in _UNDERSTOOD
        }
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse for name, parse in PostgresParser.FUNCTION_PARSERS.items() if name in _GRAMMAR
        }

        def _parse_function_call(
            self, functions: Any = None, anonymous: bool = False, optional_parens: bool = True, any_token: bool = False
        ) -> exp.Expr | None:
            # In quotes it is a plain name, even where the word alone would have a grammar.
            quoted = self._curr is not None and self._curr.token_type == TokenType.IDENTIFIER
            return super()._parse_function_call(functions, anonymous or quoted, optional_parens, any_token)

        def _parse_lateral(self) -> exp.Lateral | None:
            # A function in FROM is lateral without the word, and before ROWS FROM it is not understood.
            start = self._index
            if self._match(TokenType.LATERAL) and self._match_text_seq("ROWS", "FROM", advance=False):
                return None
            self._retreat(start)
            return super()._parse_lateral()

        def _values_to_select(self, values: exp.Values) -> Any:  # sqlglot says Select, and passes it on
            # VALUES is a query of its own, and stays one.
            return values

    class Generator(PostgresGenerator):
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **PostgresGenerator.TRANSFORMS,
            exp.Pow: lambda self, node: self.binary(node, "^"),
            exp.CurrentTime: lambda self, node: "CURRENT_TIME",
        }

        def not_sql(self, expression: exp.Not) -> str:
            """A NOT that belongs to the operator goes back into it: the server puts others before parentheses."""
            inner = expression.this
            if isinstance(inner, exp.Is) and not inner.args.get("negate"):
                return f"{self.sql(inner, 'this')} IS NOT {self.sql(inner, 'expression')}"
            if isinstance(inner, exp.RegexpLike | exp.RegexpILike) and not inner.args.get("flag"):
                operator = "!~" if isinstance(inner, exp.RegexpLike) else "!~*"
                return f"{self.sql(inner, 'this')} {operator} {self.sql(inner, 'expression')}"
            return super().not_sql(expression)


def parsed(text: str) -> exp.Expression:
    """The syntax tree of a statement that the server printed."""
    tree = sqlglot.parse_one(text, read=Verbatim)
    assert isinstance(tree, exp.Expression)
    return tree


def printed(tree: exp.Expression) -> str:
    """The text of a tree, for the server to read."""
    return tree.sql(dialect=Verbatim)
