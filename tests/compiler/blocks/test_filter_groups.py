"""Conditions on the keys of groups, before the rows are grouped."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

from millstream.algebra.expr import Expr
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Filter,
    Measure,
    Named,
    Project,
    Relation,
    Scan,
)
from millstream.compiler.blocks.filter_groups import filter_groups_first
from millstream.testing.planning_server import table

__all__ = ["law"]  # a fixture

T = Scan(table("t", "id int4, n int4", key="id"), "t")
SUBQUERY = Expr.parse('(SELECT "t"."n" FROM generate_series(CAST(1 AS BIGINT), "t"."n"))')


def filtered(argument: Expr, condition: str) -> tuple[Relation, Aggregate]:
    """Return a filter over a projection over an aggregate by id, and the aggregate."""
    groups = Aggregate(
        T,
        (Named("k", Expr.ref("t", "id")),),
        (Measure("s", Call("sum", argument, None, None)),),
        "g",
    )
    shown = Project(groups, (Named("a", Expr.ref("g", "k")), Named("b", Expr.ref("g", "s"))), "q")
    return Filter(shown, Expr.parse(condition)), groups


def below(relation: Relation) -> Relation:
    """Return the input of the aggregate in `filtered`."""
    (project,) = relation.inputs
    (groups,) = project.inputs
    return groups.inputs[0]


def test_a_condition_on_a_key_filters_the_rows_of_a_group_with_a_subquery() -> None:
    relation, groups = filtered(SUBQUERY, '"q"."a" < 50 AND "q"."b" > 1')
    found = filter_groups_first(relation)
    assert below(found) == Filter(groups.input, Expr.parse('"t"."id" < 50'))
    assert filter_groups_first(found) == found, "once is enough"


def test_conditions_on_measures_and_other_aggregates_stay_where_they_are() -> None:
    for relation, _ in (
        filtered(SUBQUERY, '"q"."b" > 1'),
        filtered(Expr.ref("t", "n"), '"q"."a" < 50'),
    ):
        assert filter_groups_first(relation) == relation


def test_a_condition_stays_behind_the_one_further_in_that_guards_it() -> None:
    """The outer one was evaluated first: an error that PostgreSQL does not raise."""
    relation, _ = filtered(SUBQUERY, '10 / "q"."a" > 1')
    (project,) = relation.inputs
    found = filter_groups_first(
        Filter(Filter(project, Expr.parse('"q"."a" <> 0')), Expr.parse('10 / "q"."a" > 1'))
    )
    (inner,) = found.inputs
    assert below(inner) == Filter(T, Expr.parse('("t"."id" <> 0) AND (10 / "t"."id" > 1)'))


SETUP = """
    CREATE TABLE t (id int PRIMARY KEY, g int);
    CREATE TABLE v (k int, y int);
    INSERT INTO t SELECT i, i % 4 FROM generate_series(1, 12) AS i;
    INSERT INTO t VALUES (98, 1), (99, 2);
    INSERT INTO v SELECT i, i FROM generate_series(1, 12) AS i;
    INSERT INTO v VALUES (98, 1), (98, 2), (99, 3), (99, 4);
"""
INNER = "(SELECT v.y FROM v WHERE v.k = t.id)"
QUERIES = {
    "each once": f"SELECT x FROM (SELECT DISTINCT t.id, {INNER} AS x FROM t) AS q WHERE q.id < 50",
    "a sum": f"SELECT id, s FROM (SELECT t.id, sum({INNER}) AS s FROM t GROUP BY t.id) AS q WHERE q.id < 50",
    "HAVING": f"SELECT t.id, max({INNER}) AS s FROM t GROUP BY t.id HAVING t.id < 50 AND count(*) > 0",
    "joined": f"SELECT q.id, u.g FROM (SELECT t.id, sum({INNER}) AS s FROM t GROUP BY t.id) AS q "
    "JOIN t AS u ON u.id = q.s WHERE q.id < 50",
    "a union": f"SELECT q.x FROM (SELECT t.id, {INNER} AS x FROM t UNION ALL SELECT id, g FROM t) AS q WHERE q.id < 50",
}


@pytest.mark.spark
def test_a_subquery_of_several_rows_raises_only_for_groups_that_are_asked_for(law: Law) -> None:
    law.change(SETUP)
    law.holds_for(
        QUERIES,
        ["UPDATE t SET g = 7, id = id + 12 WHERE id < 5; INSERT INTO v VALUES (13, 5), (99, 1)"],
    )
