"""Calls with a grammar of their own: XML functions, SQL/JSON, XMLTABLE and JSON_TABLE.

    JSON_OBJECT('a' : t.x ABSENT ON NULL RETURNING jsonb)
    XMLELEMENT(NAME "row", XMLATTRIBUTES(t.x AS id), t.note)
    JSON_TABLE(t.j, '$[*]' AS path COLUMNS (a integer PATH '$.a', NESTED PATH '$.b' AS b COLUMNS (c text PATH '$')))

Only PostgreSQL evaluates them, so nothing needs to know what they mean. A `SpecialCall` keeps its
operands as syntax trees, whose columns are found and replaced as in any other expression, and the
text between them as it is. Words are told from operands by where they stand: an operand stands
after `(`, `,`, `:` and the words of `_BEFORE_OPERAND`.
"""

from __future__ import annotations

from collections.abc import Sequence

# sqlglot's parser has no public type for what its methods return.
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType


class SpecialCall(exp.Expression, exp.Func):
    """Operands, and the texts around them: one more text than operands."""

    is_var_len_args = True
    arg_types: ClassVar[dict[str, bool]] = {"expressions": False, "texts": True, "columns": False}

    @property
    def name_of_call(self) -> str:
        """The word before the parenthesis; '' if there is none."""
        return str(self.args["texts"][0]).partition("(")[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of XMLTABLE or JSON_TABLE."""
        return tuple(self.args.get("columns") or ())


class SpecialAggregate(SpecialCall, exp.AggFunc):
    """An aggregate with a grammar of its own."""

    @property
    def has_order(self) -> bool:
        return any(text.startswith("ORDER BY") for text in self.args["texts"])

    @property
    def takes_order(self) -> bool:
        """True if ORDER BY may follow its argument: JSON_OBJECTAGG has none."""
        value = self.args["texts"][1]
        return self.name_of_call == "JSON_ARRAYAGG" and not value.startswith("FORMAT")

    def order_by(self, keys: Sequence[exp.Expr], directions: Sequence[str]) -> None:
        """Write ORDER BY into the call, in place."""
        first, rest = self.args["texts"]
        ends = [f"{direction}," for direction in directions[:-1]]
        self.set("texts", [first, "ORDER BY", *ends, f"{directions[-1]} {rest}"])
        self.set("expressions", [*self.expressions, *keys])


_AGGREGATES = frozenset({"JSON_ARRAYAGG", "JSON_OBJECTAGG"})
# The server prints these words in capitals, and the names of functions in lower case.
NAMES = _AGGREGATES | {
    "JSON", "JSON_ARRAY", "JSON_EXISTS", "JSON_OBJECT", "JSON_QUERY", "JSON_SCALAR", "JSON_SERIALIZE", "JSON_TABLE",
    "JSON_VALUE", "XMLCONCAT", "XMLELEMENT", "XMLEXISTS", "XMLFOREST", "XMLPARSE", "XMLPI",
    "XMLROOT", "XMLSERIALIZE", "XMLTABLE", "NORMALIZE",
}  # fmt: skip

# Words at the beginning of an argument, by the call that they belong to.
_OPENERS = {
    "XMLPARSE": {"DOCUMENT", "CONTENT"},
    "XMLSERIALIZE": {"DOCUMENT", "CONTENT"},
    "XMLELEMENT": {"NAME"},
    "XMLPI": {"NAME"},
    "XMLROOT": {"VERSION", "STANDALONE"},
    "XMLTABLE": {"DEFAULT"},
    "NORMALIZE": {"NFC", "NFD", "NFKC", "NFKD"},
    "JSON_OBJECT": {"RETURNING"},
    "JSON_ARRAY": {"RETURNING"},
}
_BEFORE_OPERAND = frozenset({"CONTENT", "DEFAULT", "DOCUMENT", "PASSING", "PATH", "VERSION"})
_BEFORE_NAME = frozenset({"AS", "ENCODING", "NAME"})
_NO_VALUE = ("NO", "VALUE")
# Lists in parentheses that are no values: their operands are those of the call around.
_LISTS = frozenset({"XMLATTRIBUTES", "XMLNAMESPACES"})


def is_special(name: str) -> bool:
    """Return True if a call with this name, as it is printed, has a grammar of its own."""
    return name in NAMES


def is_table(call: exp.Expr) -> bool:
    """Return True if a call is XMLTABLE or JSON_TABLE, which are items of FROM."""
    return isinstance(call, SpecialCall) and bool(call.columns)


def wrapped(texts: tuple[str, str], operand: exp.Expr | None) -> SpecialCall:
    """Return one operand between two texts: `operand AT LOCAL`."""
    return SpecialCall(expressions=[operand], texts=list(texts))


def parse_special_call(parser: Any) -> SpecialCall:
    """Read a call from a parser that stands at its name."""
    return _Reader(parser).call()


class _Reader:
    """Reads one call; the call under construction is its texts, its operands and its columns."""

    def __init__(self, parser: Any) -> None:
        self.parser = parser
        self.name: str = parser._curr.text
        self.texts = [""]
        self.operands = list[exp.Expr]()
        self.columns = list[str]()
        self.depth = 0
        """The number of open parentheses of COLUMNS (...), XMLATTRIBUTES (...)."""

    def call(self) -> SpecialCall:
        self._copy()
        self._copy()
        self._argument()
        while not self._ends():
            self._next()
        self._copy()
        kind = SpecialAggregate if self.name in _AGGREGATES else SpecialCall
        return kind(expressions=self.operands, texts=self.texts, columns=self.columns)

    def _ends(self) -> bool:
        closes = self._at(TokenType.R_PAREN)
        return closes and not self.depth

    def _next(self) -> None:
        """Read what follows an operand: a comma and an argument, or a word."""
        word = self._word()
        if self._at(TokenType.R_PAREN):
            self.depth -= 1
            self._copy()
        elif self._at(TokenType.COMMA):
            self._copy()
            self._column() if self.columns and self._defines_columns() else self._argument()
        elif self._at(TokenType.COLON):
            self._copy()
            self._operand()
        elif word == "COLUMNS":
            self._open_columns()
        elif self._at(TokenType.ORDER_BY):
            self._copy()
            self._operand()
        elif word:
            self._phrase(word)
        else:
            self.parser.raise_error(f"Unexpected in {self.name}")

    def _defines_columns(self) -> bool:
        return self.name == "XMLTABLE" or self.depth > 0

    def _argument(self) -> None:
        """Read an argument, up to the words behind its operand."""
        word = self._word()
        if self._ends():
            return
        if word in _LISTS:
            self._copy()
            self._copy()
            self.depth += 1
            self._argument()
        elif word in _OPENERS.get(self.name, ()):
            self._phrase(word)
        else:
            self._operand()

    def _phrase(self, word: str) -> None:
        """Copy a word, and the name, the type or the operand that belongs to it."""
        self._copy()
        if word == "RETURNING" or (word == "AS" and self.name == "XMLSERIALIZE"):
            self._type()
        elif word in _BEFORE_NAME:
            self._copy()
        elif word in _BEFORE_OPERAND and not self._has_no_value():
            self._operand()

    def _has_no_value(self) -> bool:
        """Return True before VERSION NO VALUE, and before the JSON of FORMAT and the like."""
        following = (self._word(), self.parser._next.text.upper())
        return following == _NO_VALUE

    def _operand(self) -> None:
        self.operands.append(self.parser._parse_bitwise())
        self.texts.append("")

    def _open_columns(self) -> None:
        self._copy()
        if self._at(TokenType.L_PAREN):
            self._copy()
            self.depth += 1
        self._column()

    def _column(self) -> None:
        """Read the name of a column and its type, or NESTED PATH and its path."""
        if self._word() == "NESTED" and self.parser._next.text.upper() == "PATH":
            self._copy()
            self._phrase("PATH")
            return
        self.columns.append(self.parser._curr.text)
        self._copy()
        if self._word() == "FOR":
            self._copy()
            self._copy()
        else:
            self._type()

    def _type(self) -> None:
        start = self.parser._curr
        self.parser._parse_types(schema=True)
        self._add(self.parser._find_sql(start, self.parser._prev))

    def _at(self, kind: TokenType) -> bool:
        return bool(self.parser._curr.token_type == kind)

    def _word(self) -> str:
        """Return the word that comes next, in capitals; '' if it is no plain word."""
        token = self.parser._curr
        plain = token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING)
        return str(token.text).upper() if plain and token.text.isidentifier() else ""

    def _copy(self) -> None:
        """Add the next token to the text."""
        token = self.parser._curr
        self._add(self.parser._find_sql(token, token))
        self.parser._advance()

    def _add(self, text: str) -> None:
        before = self.texts[-1]
        glued = not before or before.endswith("(") or text in ("(", ")", ",")
        self.texts[-1] = before + text if glued else f"{before} {text}"


def print_special_call(call: SpecialCall, operands: list[str]) -> str:
    """Return the text of a call, from the texts of its operands.

    >>> print_special_call(wrapped(("", "AT LOCAL"), exp.column("x")), ["x"])
    'x AT LOCAL'
    """
    words = [call.args["texts"][0]]
    for operand, text in zip(operands, call.args["texts"][1:], strict=True):
        words += [operand, text]
    return "".join(_spaced(words))


def _spaced(words: list[str]) -> list[str]:
    result = list[str]()
    for word in filter(None, words):
        glued = not result or result[-1].endswith("(") or word.startswith((")", ","))
        result += [word] if glued else [" ", word]
    return result
