"""GROUP BY and HAVING: what is computed before the groups, and what over them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.algebra.relation import Aggregate, Expand, Filter, Join, Relation
from millstream.errors import Unsupported

Build = Callable[[str], Relation]


def groups_of(relation: Relation) -> Aggregate:
    """Return the first aggregate from the top."""
    return next(node for node in relation.walk() if isinstance(node, Aggregate))


def test_equal_keys_and_equal_calls_are_columns_once(build: Build) -> None:
    groups = groups_of(
        build("SELECT u.a, sum(u.b) AS s, (sum(u.b) + u.a) AS x FROM u GROUP BY u.a, u.a")
    )
    assert len(groups.keys) == 1
    assert len(groups.measures) == 1


def test_a_column_that_depends_on_the_key_becomes_a_key(build: Build) -> None:
    groups = groups_of(build("SELECT t.id, t.b, count(*) AS n FROM t GROUP BY t.id"))
    assert [key.expr.sql for key in groups.keys] == ['"t"."id"', '"t"."b"']


def test_having_filters_the_groups(build: Build) -> None:
    relation = build("SELECT u.a FROM u GROUP BY u.a HAVING (max(u.b) > 3)")
    having = next(node for node in relation.walk() if isinstance(node, Filter))
    assert isinstance(having.input, Aggregate)
    assert having.predicate.aliases == {having.input.alias}


def test_a_subquery_inside_an_aggregate_is_joined_below_the_groups(build: Build) -> None:
    relation = build(
        "SELECT t.a, count(*) FILTER (WHERE (EXISTS ( SELECT FROM u WHERE (u.a = t.b)))) AS n FROM t GROUP BY t.a"
    )
    assert isinstance(groups_of(relation).input, Join)


def test_a_subquery_beside_an_aggregate_is_joined_to_the_groups(build: Build) -> None:
    relation = build(
        "SELECT t.a, count(*) AS n, (EXISTS ( SELECT FROM u WHERE (u.a = t.a))) AS x FROM t GROUP BY t.a"
    )
    join = next(node for node in relation.walk() if isinstance(node, Join))
    assert isinstance(join.left, Aggregate)
    assert join.kind == "mark"


def test_a_set_returning_key_is_expanded_before_grouping(build: Build) -> None:
    groups = groups_of(
        build(
            "SELECT generate_series(1, u.a) AS k, count(*) AS n FROM u GROUP BY (generate_series(1, u.a))"
        )
    )
    assert isinstance(groups.input, Expand)
    assert groups.keys[0].expr.aliases == {groups.input.alias}


def test_aggregates_of_a_lateral_without_group_by_have_a_row_for_each_binding(build: Build) -> None:
    relation = build(
        "SELECT t.id, q.n FROM t, LATERAL ( SELECT count(*) AS n FROM u WHERE (u.a < t.a) HAVING (count(*) < 9)) q"
    )
    default = next(
        node for node in relation.walk() if isinstance(node, Join) and node.kind == "left"
    )
    assert isinstance(default.right, Aggregate)


def test_grouping_by_a_subquery_is_refused(build: Build) -> None:
    with pytest.raises(Unsupported, match="GROUP BY a subquery"):
        build(
            "SELECT count(*) AS n FROM t GROUP BY ROLLUP(( SELECT max(u.b) AS max FROM u WHERE (u.a = t.a)))"
        )
