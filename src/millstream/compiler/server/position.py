"""Find the position of a construct in the user's query, for error messages.

The server's analysed tree, in which constructs are recognized, does not have the text. So the keywords of the construct
are searched among the query's tokens, without comments and strings.

>>> find("SELECT DISTINCT a FROM t", "DISTINCT")
8
"""

from __future__ import annotations

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType


def find(query: str, *words: str) -> int | None:
    """Return the position (from 1) of the first of these words that occurs in the query; None if none does."""
    tokens = [token for token in _tokens(query) if token.token_type != TokenType.STRING]
    for word in words:
        for token in tokens:
            if word.upper() in (token.text.upper(), token.text.upper().split(" ")[0]):
                return token.start + 1
    return None


def excerpt(query: str, position: int | None) -> str:
    """Return the line of the query with the position marked by an arrow; '' without a position."""
    if position is None:
        return ""
    start = query.rfind("\n", 0, position - 1) + 1
    line_number = query.count("\n", 0, position - 1) + 1
    end = query.find("\n", position - 1)
    line = query[start : end if end != -1 else len(query)]
    column = position - start
    head, tail = line[: column - 1], line[column - 1 :]
    return f"Line {line_number}: {head[-60:]} --> {tail[:60]}".rstrip()


def _tokens(query: str) -> list[Token]:
    try:
        return list(sqlglot.tokenize(query, read="postgres"))
    except SqlglotError:
        return []
