"""Subqueries in ON: where each is attached."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.algebra.relation import Filter, Join, Project, Relation
from millstream.errors import Unsupported

Build = Callable[[str], Relation]


def outer_join(relation: Relation) -> Join:
    assert isinstance(relation, Project)
    assert isinstance(relation.input, Join)
    return relation.input


def test_over_the_nullable_side_it_filters_that_side(build: Build) -> None:
    text = "SELECT t.id FROM t LEFT JOIN u ON (((u.a = t.a) AND (EXISTS ( SELECT FROM w WHERE (w.b = u.b)))))"
    join = outer_join(build(text))
    assert join.kind == "left"
    assert isinstance(join.right, Filter)


def test_over_the_preserved_side_it_is_a_condition_of_the_join(build: Build) -> None:
    text = "SELECT t.id FROM t LEFT JOIN u ON (((u.a = t.a) AND (EXISTS ( SELECT FROM w WHERE (w.b = t.b)))))"
    join = outer_join(build(text))
    assert isinstance(join.left, Join)
    assert join.left.kind == "mark"
    assert join.left.mark is not None
    assert join.condition is not None
    assert join.left.mark in join.condition.refs


def test_over_both_sides_the_nullable_side_is_computed_per_binding(build: Build) -> None:
    text = (
        "SELECT t.id FROM t LEFT JOIN u "
        "ON (((u.a = t.a) AND (EXISTS ( SELECT FROM w WHERE ((w.b = t.b) AND (w.a = u.b))))))"
    )
    join = outer_join(build(text))
    assert "Aggregate  given" in str(join.right)
    assert "IS NOT DISTINCT FROM" in str(join.condition) or "IS DISTINCT FROM" in str(
        join.condition
    )


def test_over_both_sides_of_a_full_join_it_is_refused(build: Build) -> None:
    text = (
        "SELECT t.id FROM t FULL JOIN u "
        "ON (((u.a = t.a) AND (EXISTS ( SELECT FROM w WHERE ((w.b = t.b) AND (w.a = u.b))))))"
    )
    with pytest.raises(Unsupported, match="FULL JOIN that is correlated with both sides"):
        build(text)
