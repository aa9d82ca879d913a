"""Subqueries of expressions become joins: which form each takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.algebra.relation import Aggregate, Filter, Join, Relation, Scan
from millstream.errors import Unsupported

Build = Callable[[str], Relation]


def joins_of(relation: Relation) -> list[Join]:
    return [node for node in relation.walk() if isinstance(node, Join)]


def tables_below(relation: Relation) -> list[str]:
    return [
        node.table.title.removeprefix("public.")
        for node in relation.walk()
        if isinstance(node, Scan)
    ]


def test_exists_is_a_mark_join_by_the_conditions_of_its_where(build: Build) -> None:
    relation = build(
        "SELECT t.id FROM t WHERE (EXISTS ( SELECT FROM u WHERE ((u.a = t.a) AND (u.b > t.b) AND (u.b < 9))))"
    )
    (join,) = joins_of(relation)
    assert join.kind == "mark"
    assert join.condition is not None
    assert join.condition.aliases == {"t", "u"}
    # What is about u alone filters u.
    assert isinstance(join.right, Filter)


def test_not_exists_negates_the_mark(build: Build) -> None:
    relation = build("SELECT t.id FROM t WHERE (NOT (EXISTS ( SELECT FROM u WHERE (u.a = t.a))))")
    (join,) = joins_of(relation)
    condition = next(node for node in relation.walk() if isinstance(node, Filter)).predicate
    assert condition.refs == {join.mark}
    assert condition.sql.startswith("NOT")


def test_each_subquery_of_a_condition_is_joined_in_its_order(build: Build) -> None:
    exists = "(EXISTS ( SELECT FROM {0} WHERE ({0}.a = t.a)))"
    relation = build(f"SELECT t.id FROM t WHERE ({exists.format('u')} OR {exists.format('w')})")
    last, first = joins_of(relation)
    assert tables_below(first) == ["t", "u"]
    assert tables_below(last) == ["t", "u", "w"]


def test_a_distinct_that_changes_nothing_is_ignored_for_exists_only(build: Build) -> None:
    exists = build(
        "SELECT t.id FROM t WHERE (EXISTS ( SELECT DISTINCT u.b FROM u WHERE (u.a = t.a)))"
    )
    assert not any(isinstance(node, Aggregate) for node in exists.walk())
    scalar = build("SELECT t.id, ( SELECT DISTINCT u.b FROM u WHERE (u.a = t.a)) AS b FROM t")
    assert any(isinstance(node, Aggregate) for node in scalar.walk())


def test_outer_columns_outside_where_need_bindings(build: Build) -> None:
    plain = build("SELECT t.id FROM t WHERE (EXISTS ( SELECT FROM u WHERE (u.a < t.a)))")
    assert tables_below(plain) == ["t", "u"]
    limited = build("SELECT t.id FROM t WHERE (EXISTS ( SELECT FROM u WHERE (u.a < t.a) OFFSET 2))")
    assert sorted(tables_below(limited)) == ["t", "t", "u"]


def test_an_empty_select_list_below_offset_has_one_internal_column(build: Build) -> None:
    """Planning it failed (MS902): the server was asked for the type of a column that the query does
    not have.
    """
    relation = build(
        "SELECT t.id FROM t WHERE (EXISTS ( SELECT FROM u WHERE (u.a = t.a) OFFSET 2))"
    )
    mark = joins_of(relation)[0]
    assert mark.condition is not None
    assert [ref.column for ref in mark.right.columns] == ["one", "__ms_binding_0"]


def test_equal_any_is_in_and_not_equal_all_is_not_in(build: Build) -> None:
    listed = "SELECT t.id, {} AS x FROM t"
    any_ = build(listed.format("(t.a = ANY ( SELECT u.a FROM u))"))
    in_ = build(listed.format("(t.a IN ( SELECT u.a FROM u))"))
    assert str(any_) == str(in_)
    all_ = build(listed.format("(t.a <> ALL ( SELECT u.a FROM u))"))
    not_in = build(listed.format("(NOT (t.a IN ( SELECT u.a FROM u)))"))
    assert len(joins_of(all_)) == len(joins_of(not_in))


def test_a_row_compared_with_a_scalar_subquery_is_refused(build: Build) -> None:
    with pytest.raises(Unsupported, match="compared with a subquery"):
        build("SELECT t.id FROM t WHERE ((t.a, t.b) = ( SELECT u.a, u.b FROM u))")
