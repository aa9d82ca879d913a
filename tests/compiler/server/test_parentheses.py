"""Parentheses that the server prints and drops again."""

from __future__ import annotations

import pytest

from millstream.compiler.server.parentheses import remove_parentheses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(((x >= 1) AND (x <= 2)) AND y)", "((x >= 1) AND (x <= 2) AND y)"),
        ("(((x = a) OR (x = b)) OR (x = c))", "((x = a) OR (x = b) OR (x = c))"),
    ],
)
def test_an_operator_that_begins_with_itself_loses_the_inner_parentheses(
    text: str, expected: str
) -> None:
    assert remove_parentheses(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "((a OR b) AND c)",
        "(a AND (b AND c))",
        "((a AND b) = c AND d)",
        "('((a AND b) AND c)' = x)",
        '("((a AND b) AND c)" = x)',
    ],
)
def test_other_parentheses_stay(text: str) -> None:
    assert remove_parentheses(text) == text
