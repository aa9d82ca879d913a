"""Find where in the user's query a construct stands, for error messages.

What is refused is found in the server's analysed tree, which has lost the text; so the words that
make the construct are looked for among the query's tokens. Comments and strings do not count.

>>> find("SELECT DISTINCT a FROM t", "DISTINCT")
8
"""

from __future__ import annotations

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType


def find(query: str, *words: str) -> int | None:
    """The position (from 1) of the first of these words that stands in the text; None if none does."""
    tokens = [token for token in _tokens(query) if token.token_type != TokenType.STRING]
    for word in words:
        for token in tokens:
            if word.upper() in (token.text.upper(), token.text.upper().split(" ")[0]):
                return token.start + 1
    return None


def excerpt(query: str, position: int | None) -> str:
    """The line of the query with the position marked, as one sentence."""
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
