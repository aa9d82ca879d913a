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
        """A field that is one word; empty when absent or `<>`."""
        value = self.fields.get(name, "")
        if isinstance(value, list):
            value = value[0] if value and isinstance(value[0], str) else ""
        return value if isinstance(value, str) and value != "<>" else ""

    def number(self, name: str) -> int:
        """A field that is a number; 0 when absent."""
        word = self.word(name)
        return int(word) if word.lstrip("-").isdigit() else 0

    def flag(self, name: str) -> bool:
        return self.word(name) == "true"

    def filled(self, name: str) -> bool:
        """Does the field hold anything?"""
        value = self.fields.get(name, "<>")
        return value not in ("<>", "", [])


def parse(text: str) -> Value:
    """The tree in the text of a `pg_node_tree`."""
    tokens = _TOKEN.findall(text)
    value, _ = _value(tokens, 0)
    return value


def _value(tokens: list[str], at: int) -> tuple[Value, int]:
    if tokens[at] == "{":
        return _node(tokens, at + 1)
    if tokens[at] == "(":
        return _list(tokens, at + 1)
    return tokens[at], at + 1


def _list(tokens: list[str], at: int) -> tuple[Value, int]:
    items: list[Value] = []
    while tokens[at] != ")":
        item, at = _value(tokens, at)
        items.append(item)
    return items, at + 1


def _node(tokens: list[str], at: int) -> tuple[Value, int]:
    node = Node(tokens[at])
    at += 1
    while tokens[at] != "}":
        name = tokens[at][1:]
        at += 1
        words: list[Value] = []
        while tokens[at] != "}" and not tokens[at].startswith(":"):
            item, at = _value(tokens, at)
            words.append(item)
        node.fields[name] = words[0] if len(words) == 1 else words
    return node, at + 1


def walk(value: Value) -> Iterator[Node]:
    """Every node, from the top."""
    if isinstance(value, Node):
        yield value
        for child in value.fields.values():
            yield from walk(child)
    elif isinstance(value, list):
        for child in value:
            yield from walk(child)


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
    "COERCETODOMAIN": "resulttype", "SQLVALUEFUNCTION": "type",
}  # fmt: skip


def result_type(node: Node) -> int:
    """The oid of the type of an expression; 0 where the node does not say."""
    if node.kind in ("BOOLEXPR", "NULLTEST", "BOOLEANTEST", "SCALARARRAYOPEXPR"):
        return 16
    return node.number(_TYPE_FIELD.get(node.kind, ""))
