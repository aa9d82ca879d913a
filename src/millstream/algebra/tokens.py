"""Tokens as PostgreSQL has them: operators of any name, and types of two words.

The longest run of operator characters is one operator. sqlglot knows some operators, and reads `a
~>=~ b` as several of them. A run that it does not know becomes the tokens of OPERATOR(...), which
it reads whatever the name is.

    a ~>=~ b        a  OPERATOR ( ~>=~ )  b
    (?| a)          (  OPERATOR ( ?| )  a  )

`bit varying` becomes its other name, `varbit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.tokenizer_core import Token, TokenType

_CHARACTERS = frozenset("+-*/<>=~!@#%^&|`?")
# An operator may end in + or - only with one of these in it: `a <-1` has two operators, `a @-1` has
# one.
_ALLOW_SIGN_AT_END = frozenset("~!@#%^&|`?")

# Operators that sqlglot has a node for, and prints again as they were.
_INFIX = frozenset({
    "+", "-", "*", "/", "%", "^", "=", "<>", "<", ">", "<=", ">=", "||", "&", "|", "#", "<<", ">>",
    "~~", "~~*", "!~~", "!~~*", "~", "~*", "!~", "!~*", "@>", "<@", "&&", "->", "->>", "#>", "#>>", "#-", "@?",
    "?", "?|", "?&", "&<", "&>", "-|-", "<->", "=>",
})  # fmt: skip
_PREFIX = frozenset({"-", "~", "*"})
# oid, regclass, cstring ... have arrays too, which sqlglot does not read.
_TYPES_WITHOUT_ARRAYS = frozenset({TokenType.OBJECT_IDENTIFIER, TokenType.PSEUDO_TYPE})
_BEFORE_PREFIX = frozenset({TokenType.L_PAREN, TokenType.COMMA, TokenType.OPERATOR})


class PrefixOperator(exp.Unary):
    """An operator before its only operand, by its name."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "operator": True}


def as_postgresql_reads(tokens: Sequence[Token], text: str) -> list[Token]:
    """Return the tokens of a text with each operator, and each name of a type, as one."""
    return list(_with_types(with_operators(tokens, text)))


def with_operators(tokens: Sequence[Token], text: str) -> list[Token]:
    """Return the tokens of a text with each operator as one.

    >>> from sqlglot.dialects.postgres import Postgres
    >>> text = "a ~>=~ b"
    >>> [token.text for token in with_operators(Postgres().tokenize(text), text)]
    ['a', 'OPERATOR', '(', '~>=~', ')', 'b']
    """
    result = list[Token]()
    for run in _runs(list(_without_parameters(tokens)), text):
        name = text[run[0].start : run[-1].end + 1]
        if not _is_operator(name) or _is_known(name, result) or _is_qualified(result):
            result += run
        else:
            result += _as_operator(name, run)
    return result


def _without_parameters(tokens: Sequence[Token]) -> Iterator[Token]:
    """Give words their meaning back that sqlglot took for the name of a parameter, since they
    follow an @.
    """
    before = None
    for token in tokens:
        follows_at = before is not None and before.token_type == TokenType.PARAMETER
        yield _as_keyword(token) if follows_at and token.token_type == TokenType.VAR else token
        before = token


def _as_keyword(token: Token) -> Token:
    kind = Postgres.Tokenizer.KEYWORDS.get(token.text.upper(), TokenType.VAR)
    return Token(kind, token.text, token.line, token.col, token.start, token.end)


def _runs(tokens: Sequence[Token], text: str) -> Iterator[list[Token]]:
    """Split tokens into runs: the tokens of one operator, or one other token."""
    run = list[Token]()
    for token in tokens:
        is_part = _is_operator(text[token.start : token.end + 1])
        if run and not (is_part and token.start == run[-1].end + 1):
            yield from _without_signs(run, text)
            run = []
        run.append(token)
        if not is_part:
            yield run
            run = []
    if run:
        yield from _without_signs(run, text)


def _without_signs(run: list[Token], text: str) -> Iterator[list[Token]]:
    """Split + and - from the end of a run, as PostgreSQL does."""
    end = len(run)
    while end > 1 and run[end - 1].text in {"+", "-"} and not _may_end_in_sign(run[:end], text):
        end -= 1
    yield run[:end]
    yield from ([sign] for sign in run[end:])


def _may_end_in_sign(run: Sequence[Token], text: str) -> bool:
    return not _ALLOW_SIGN_AT_END.isdisjoint(text[run[0].start : run[-1].end + 1])


def _is_operator(text: str) -> bool:
    return bool(text) and _CHARACTERS.issuperset(text)


def _is_known(name: str, before: Sequence[Token]) -> bool:
    is_prefix = not before or before[-1].token_type in _BEFORE_PREFIX
    return name in (_PREFIX if is_prefix else _INFIX)


def _is_qualified(before: Sequence[Token]) -> bool:
    """Return True within OPERATOR(schema.name)."""
    return bool(before) and before[-1].token_type == TokenType.DOT


def _as_operator(name: str, run: Sequence[Token]) -> list[Token]:
    start, end = run[0], run[-1]
    kinds = [
        (TokenType.OPERATOR, "OPERATOR"), (TokenType.L_PAREN, "("), (TokenType.VAR, name), (TokenType.R_PAREN, ")"),
    ]  # fmt: skip
    return [Token(kind, word, start.line, start.col, start.start, end.end) for kind, word in kinds]


def _with_types(tokens: Sequence[Token]) -> Iterator[Token]:
    skipped = False
    for token, after in zip_longest(tokens, tokens[1:]):
        is_varbit = after is not None and _is_word(token, "BIT") and _is_word(after, "VARYING")
        if is_varbit:
            yield Token(TokenType.VAR, "varbit", token.line, token.col, token.start, after.end)
        elif not skipped:
            yield _as_name(token) if token.token_type in _TYPES_WITHOUT_ARRAYS else token
        skipped = is_varbit


def _as_name(token: Token) -> Token:
    return Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)


def _is_word(token: Token, word: str) -> bool:
    return (
        token.token_type not in {TokenType.IDENTIFIER, TokenType.STRING}
        and token.text.upper() == word
    )
