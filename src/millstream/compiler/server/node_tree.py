"""Read PostgreSQL's own analysed query tree.

`pg_rewrite.ev_action` of a view is the query after the server has resolved every name, type,
operator and function. It is the one place that says which function a call really means, so
volatility and refusals are decided here and not on SQL text. The format:

    {OPEXPR :opno 96 :opfuncid 65 :args ({VAR :varno 1 ...} {CONST :consttype 23 ...})}

>>> tree = parse("({QUERY :hasAggs false :targetList ({CONST :consttype 23})})")
>>> [node.kind for node in walk(tree)]
['QUERY', 'CONST']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

# A field holds words, nodes and lists of them.
Value: TypeAlias = "str | Node | list[Value]"

_TOKEN = re.compile(r'\{|\}|\(|\)|(?:"(?:\\.|[^"\\])*")|(?:\\.|[^\s(){}])+', re.DOTALL)


@dataclass
class Node:
    """One node: its kind and its fields; a field of several words is a list."""

    kind: str
    fields: dict[str, Value] = field(default_factory=dict)

    def word(self, name: str) -> str:
        """Return a field that is one word; '' if it is absent or `<>`."""
        value = self.fields.get(name, "")
        if isinstance(value, list):
            value = value[0] if value and isinstance(value[0], str) else ""
        return value if isinstance(value, str) and value != "<>" else ""

    def number(self, name: str) -> int:
        """Return a field that is a number; 0 if it is absent."""
        word = self.word(name)
        return int(word) if word.lstrip("-").isdigit() else 0

    def flag(self, name: str) -> bool:
        return self.word(name) == "true"

    def filled(self, name: str) -> bool:
        """Return True if a field is not empty."""
        value = self.fields.get(name, "<>")
        return value not in ("<>", "", [])


@dataclass
class _OpenNode:
    """A list or a node that is being read: its items, or the words of the field that is being read."""

    node: Node | None = None
    name: str = ""
    words: list[Value] = field(default_factory=list)

    def begin(self, name: str) -> None:
        """End the current field, if there is one, and begin another."""
        if self.node is not None and self.name:
            self.node.fields[self.name] = self.words[0] if len(self.words) == 1 else self.words
        self.name, self.words = name, []


def parse(text: str) -> Value:
    """Parse the text of a `pg_node_tree`, without recursion: a sum of 1,000 terms is 1,000 levels
    deep.
    """
    around = [_OpenNode()]
    tokens = iter(_TOKEN.findall(text))
    for token in tokens:
        inner = around[-1]
        if token == "{":
            around.append(_OpenNode(Node(next(tokens))))
        elif token == "(":
            around.append(_OpenNode())
        elif token == "}":
            inner.begin("")
            assert inner.node is not None, "a brace that closes nothing"
            around.pop()
            around[-1].words.append(inner.node)
        elif token == ")":
            around.pop()
            around[-1].words.append(inner.words)
        elif inner.node is not None and token.startswith(":"):
            inner.begin(token[1:])
        else:
            inner.words.append(token)
    return around[0].words[0]


def walk(value: Value) -> Iterator[Node]:
    """Yield every node of a tree, from the top."""
    waiting: list[Value] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Node):
            yield one
            waiting += reversed(one.fields.values())
        elif isinstance(one, list):
            waiting += reversed(one)


# The field that tells the type of an expression node's result.
_TYPE_FIELD = {
    "VAR": "vartype", "CONST": "consttype", "PARAM": "paramtype", "AGGREF": "aggtype", "WINDOWFUNC": "wintype",
    "FUNCEXPR": "funcresulttype", "OPEXPR": "opresulttype",
    "DISTINCTEXPR": "opresulttype", "NULLIFEXPR": "opresulttype",
    "RELABELTYPE": "resulttype", "COERCEVIAIO": "resulttype", "ARRAYCOERCEEXPR": "resulttype", "CASE": "casetype",
    "CONVERTROWTYPEEXPR": "resulttype", "COALESCE": "coalescetype", "COALESCEEXPR": "coalescetype",
    "CASEEXPR": "casetype",
    "MINMAX": "minmaxtype", "MINMAXEXPR": "minmaxtype", "ARRAY": "array_typeid", "ARRAYEXPR": "array_typeid",
    "ROW": "row_typeid", "ROWEXPR": "row_typeid", "SUBSCRIPTINGREF": "refrestype", "FIELDSELECT": "resulttype",
    "COERCETODOMAIN": "resulttype", "SQLVALUEFUNCTION": "type", "XMLEXPR": "type", "COLLATEEXPR": "resulttype",
}  # fmt: skip


def result_type(node: Node) -> int:
    """Return the oid of an expression's type; 0 if the node does not have it."""
    if node.kind in ("BOOLEXPR", "NULLTEST", "BOOLEANTEST", "SCALARARRAYOPEXPR", "JSONISPREDICATE"):
        return 16
    if node.kind in ("JSONEXPR", "JSONCONSTRUCTOREXPR"):
        returning = node.fields.get("returning")
        return returning.number("typid") if isinstance(returning, Node) else 0
    if node.kind == "JSONVALUEEXPR":
        value = node.fields.get("formatted_expr")
        return result_type(value) if isinstance(value, Node) else 0
    return node.number(_TYPE_FIELD.get(node.kind, ""))


# How the server prints a call that is a conversion, written out or not.
_CONVERSIONS = ("1", "2")


def converted_types(tree: Value) -> set[int]:
    """Return the oids of all types that a query casts from or to, explicitly or implicitly."""
    found = set[int]()
    for node in walk(tree):
        is_cast = node.kind == "FUNCEXPR" and node.word("funcformat") in _CONVERSIONS
        if is_cast or node.kind in ("COERCEVIAIO", "ARRAYCOERCEEXPR", "CONVERTROWTYPEEXPR"):
            found |= {result_type(node), *map(result_type, _arguments(node))}
    return (found | extracted_types(tree)) - {0}


def extracted_types(tree: Value) -> set[int]:
    """Return the oids of the types of columns and values that a query takes out of JSON or XML."""
    found = set[int]()
    for node in walk(tree):
        if node.kind == "JSONEXPR":
            found.add(result_type(node))
        listed = node.fields.get(_COLUMN_TYPES.get(node.kind, ""))
        words = listed if isinstance(listed, list) else []
        found |= {int(word) for word in words if isinstance(word, str) and word.isdigit()}
    return found


# JSON_TABLE and XMLTABLE, and functions with a list of column definitions.
_COLUMN_TYPES = {"TABLEFUNC": "coltypes", "RANGETBLFUNCTION": "funccoltypes"}


def _arguments(node: Node) -> list[Node]:
    listed = [node.fields.get("arg"), node.fields.get("args")]
    parts = [part for one in listed for part in (one if isinstance(one, list) else [one])]
    return [part for part in parts if isinstance(part, Node)]
