"""Comparisons of rows and with lists, expanded into comparisons of values."""

from __future__ import annotations

import pytest

from millstream.algebra.expr import Expr
from millstream.compiler.placement.row_comparison import (
    LONGEST,
    expand_row_comparison,
    listed_values,
)


def expanded(text: str) -> str:
    return Expr.of(expand_row_comparison(Expr(text).tree)).sql


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("ROW(a, b) < ROW(c, d)", "(a < c) OR ((a = c) AND (b < d))"),
        ("ROW(a, b) >= ROW(c, d)", "(a > c) OR ((a = c) AND (b >= d))"),
        ("x = ANY (ARRAY[y, z])", "(x = y) OR (x = z)"),
        ("x <> ALL (ARRAY[y, z])", "(x <> y) AND (x <> z)"),
    ],
)
def test_the_first_pair_that_is_not_equal_decides(text: str, result: str) -> None:
    assert expanded(text) == result


@pytest.mark.parametrize("text", ["a < b", "x = ANY(t)", "ROW(a, ROW(b, c)) < ROW(d, ROW(e, f))"])
def test_other_comparisons_stay_as_they_are(text: str) -> None:
    assert expanded(text) == Expr.parse(text).sql


def test_a_long_list_is_left_to_postgresql() -> None:
    def comparison(number: int) -> Expr:
        return Expr(f"x = ANY (ARRAY[{', '.join(map(str, range(number)))}])")

    assert len(listed_values(comparison(LONGEST).tree)) == LONGEST
    assert listed_values(comparison(LONGEST + 1).tree) == []
