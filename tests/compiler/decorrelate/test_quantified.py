"""IN, ANY and ALL: the relations they become, and the three-valued logic of the templates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from millstream.algebra.relation import Relation
from millstream.compiler.decorrelate.quantified import _TEMPLATES

Build = Callable[[str], Relation]


def test_in_that_only_filters_needs_one_mark(build: Build) -> None:
    tree = str(build("SELECT t.id FROM t WHERE (t.a IN ( SELECT u.a FROM u))"))
    assert tree.count("Join  mark") == 1
    assert "Aggregate" not in tree


def test_not_in_distinguishes_unknown_from_false(build: Build) -> None:
    tree = str(build("SELECT t.id FROM t WHERE (NOT (t.a IN ( SELECT u.a FROM u)))"))
    assert "CAST(NULL AS BOOLEAN)" in tree
    assert tree.count("Aggregate") == 2


def test_not_in_of_columns_that_are_never_null_needs_one_mark(build: Build) -> None:
    tree = str(build("SELECT t.id FROM t WHERE (NOT (t.id IN ( SELECT t_1.id FROM t t_1)))"))
    assert tree.count("Join  mark") == 1
    assert "CAST(NULL" not in tree


def test_any_and_all_compare_with_the_bounds(build: Build) -> None:
    tree = str(build("SELECT t.id FROM t WHERE (t.a > ALL ( SELECT u.a FROM u WHERE (u.b = t.b)))"))
    assert "AS least" in tree
    assert "AS most" in tree
    assert "Join  left" in tree


def compare(x: int | None, symbol: str, y: int | None) -> bool | None:
    if x is None or y is None:
        return None
    return {">": x > y, ">=": x >= y, "<": x < y, "<=": x <= y, "=": x == y, "<>": x != y}[symbol]


def quantified(
    is_all: bool, symbol: str, x: int | None, values: tuple[int | None, ...]
) -> bool | None:
    """Return what SQL defines: the AND (ALL) or the OR (ANY) of all comparisons."""
    outcomes = [compare(x, symbol, value) for value in values]
    if (not is_all) in outcomes:
        return not is_all
    return None if None in outcomes else is_all


def evaluate(
    is_all: bool, symbol: str, x: int | None, values: tuple[int | None, ...]
) -> bool | None:
    """Evaluate the CASE of a template by hand."""
    known = [value for value in values if value is not None]
    least, most = min(known, default=None), max(known, default=None)
    template = _TEMPLATES[is_all, symbol]
    if not values:
        return is_all
    if "<> {least}" in template:
        decided = compare(x, "<>", least) or compare(x, "<>", most)
    else:
        bound = most if "{most}" in template else least
        outcome = compare(x, symbol, bound)
        decided = outcome is False if is_all else outcome
    if decided:
        return not is_all
    return None if len(values) > len(known) or x is None else is_all


@pytest.mark.parametrize(("is_all", "symbol"), list(_TEMPLATES))
def test_a_template_agrees_with_sql_for_values_and_nulls(is_all: bool, symbol: str) -> None:
    choices: tuple[int | None, ...] = (1, 2, 3, None)
    for x, *values in [one for length in range(4) for one in product(choices, repeat=length + 1)]:
        listed = tuple(values)
        assert evaluate(is_all, symbol, x, listed) == quantified(is_all, symbol, x, listed), (
            x,
            listed,
        )
