"""Names of a select list."""

from __future__ import annotations

from millstream.compiler.clauses.select_list import unique_names


def test_a_name_that_occurs_again_gets_its_position() -> None:
    assert unique_names(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]


def test_unique_names_stay() -> None:
    assert unique_names(["a", "b"]) == ["a", "b"]
