"""Calls with a grammar of their own: their words are told from their operands."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed, printed


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x IS NFC NORMALIZED", ["x"]),
        ("x IS NORMALIZED", ["x"]),
        ("x IS DOCUMENT", ["x"]),
        ("NORMALIZE(x, NFD)", ["x"]),
        ("make_interval(days => x)", ["x"]),
        ("JSON_VALUE(j, '$' PASSING x AS z RETURNING text DEFAULT y ON ERROR)", ["j", "x", "y"]),
        ("JSON_OBJECTAGG(x : y ABSENT ON NULL RETURNING jsonb) FILTER (WHERE z)", ["x", "y", "z"]),
        ("JSON_ARRAYAGG(x ORDER BY y, z RETURNING json)", ["x", "y", "z"]),
        ("XMLELEMENT(NAME a, XMLATTRIBUTES(x AS name), y, z)", ["x", "y", "z"]),
        ("XMLPARSE(CONTENT content STRIP WHITESPACE)", ["content"]),
        ("SUBSTRING(x SIMILAR y ESCAPE z)", ["x", "y", "z"]),
    ],
)
def test_the_columns_of_a_call_with_a_grammar_of_its_own_are_known(
    text: str, names: list[str]
) -> None:
    """Its words are no columns, and what looks like one of its words may be a column."""
    found = parsed(f"SELECT {text}").find_all(exp.Column)
    assert sorted(column.name for column in found) == names


@pytest.mark.parametrize(
    "text",
    [
        "JSON_OBJECT('a' : x ABSENT ON NULL WITH UNIQUE KEYS RETURNING json)",
        "JSON_ARRAYAGG(x ORDER BY y DESC NULLS LAST, z RETURNING json)",
        "XMLROOT(x, VERSION NO VALUE, STANDALONE YES)",
        "XMLELEMENT(NAME \"a b\", XMLATTRIBUTES(x AS y, z AS w), 'content')",
    ],
)
def test_a_call_is_printed_as_it_was_read(text: str) -> None:
    assert printed(parsed(f"SELECT {text}")) == f"SELECT {text}"


def test_an_operand_that_is_no_single_value_is_put_in_parentheses() -> None:
    tree = parsed("SELECT JSON_SCALAR(x)")
    next(tree.find_all(exp.Column)).replace(parsed("SELECT x = 1").expressions[0])
    assert printed(tree) == "SELECT JSON_SCALAR((x = 1))"
