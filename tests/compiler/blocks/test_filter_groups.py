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
from millstream.testing.planning_server import PlanningServerDouble, table

__all__ = ["law"]  # a fixture

SERVER = PlanningServerDouble()
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
    found = filter_groups_first(relation, SERVER)
    assert below(found) == Filter(groups.input, Expr.parse('"t"."id" < 50'))
    assert filter_groups_first(found, SERVER) == found, "once is enough"


def test_conditions_on_measures_and_other_aggregates_stay_where_they_are() -> None:
    for relation, _ in (
        filtered(SUBQUERY, '"q"."b" > 1'),
        filtered(Expr.ref("t", "n"), '"q"."a" < 50'),
    ):
        assert filter_groups_first(relation, SERVER) == relation


def test_a_condition_stays_behind_the_one_further_in_that_guards_it() -> None:
    """The outer one was evaluated first: an error that PostgreSQL does not raise."""
    relation, _ = filtered(SUBQUERY, '10 / "q"."a" > 1')
    (project,) = relation.inputs
    guarded = Filter(Filter(project, Expr.parse('"q"."a" <> 0')), Expr.parse('10 / "q"."a" > 1'))
    found = filter_groups_first(guarded, SERVER)
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


WRITTEN = """
    CREATE TABLE w (id int PRIMARY KEY, n numeric, b bpchar, f float8, j int);
    CREATE TABLE x (m numeric, j int);
    INSERT INTO w SELECT i, (ARRAY[1, 1.0, 1.00, 2.0, 2, -0.50])[i % 6 + 1], (ARRAY['a', 'a ', 'b'])[i % 3 + 1],
        (ARRAY[0, '-0', 1.5])[i % 3 + 1], i % 4 FROM generate_series(1, 24) AS i;
    INSERT INTO x VALUES (1, 1), (1.0, 2), (2.00, 3), (7, 4);
"""
GROUPS = "SELECT n, count(*) AS c FROM w GROUP BY n"
ON_KEYS = {
    "HAVING": f"{GROUPS} HAVING scale(n) = 1",
    "HAVING as text": f"{GROUPS} HAVING n::text = '1.0' AND count(*) > 0",
    "signs of zero": "SELECT f, count(*) AS c FROM w GROUP BY f HAVING f::text = '0'",
    "blanks": "SELECT b, count(*) AS c FROM w GROUP BY b HAVING octet_length(b) = 2",
    "derived": f"SELECT * FROM ({GROUPS}) AS q WHERE scale(q.n) = 1",
    "computed key": "SELECT * FROM (SELECT n + j AS k, count(*) AS c FROM w GROUP BY n + j) AS q WHERE scale(q.k) = 1",
    "in an aggregate": f"SELECT sum(q.c) AS s FROM ({GROUPS}) AS q WHERE scale(q.n) = 1",
    "each once": "SELECT * FROM (SELECT DISTINCT n FROM w) AS q WHERE scale(q.n) = 2",
    "first of each": "SELECT * FROM (SELECT DISTINCT ON (n) n, id FROM w ORDER BY n, id) AS q WHERE scale(q.n) = 1",
    "union": "SELECT * FROM (SELECT n FROM w UNION SELECT m FROM x) AS q WHERE scale(q.n) = 2",
    "union of groups": f"SELECT * FROM ({GROUPS} UNION ALL SELECT m, 1 FROM x) AS q WHERE scale(q.n) = 1",
    "intersect": "SELECT * FROM (SELECT n FROM w INTERSECT SELECT m FROM x) AS q WHERE scale(q.n) = 0",
    "intersect all": "SELECT * FROM (SELECT n FROM w INTERSECT ALL SELECT m FROM x) AS q WHERE scale(q.n) = 0",
    "partitions": "SELECT * FROM (SELECT n, id, count(*) OVER (PARTITION BY n) AS c FROM w) AS q WHERE scale(q.n) = 1",
    "two kinds of partitions": "SELECT * FROM (SELECT n, id, count(*) OVER (PARTITION BY n) AS c, "
    "sum(id) OVER (PARTITION BY j) AS s FROM w) AS q WHERE scale(q.n) = 1",
    "a partition by more": "SELECT * FROM (SELECT n, id, count(*) OVER (PARTITION BY n) AS c, "
    "sum(id) OVER (PARTITION BY j, n) AS s FROM w) AS q WHERE scale(q.n) = 1",
    "joined": f"SELECT x.j, q.c FROM x JOIN ({GROUPS}) AS q ON q.n = x.m AND scale(q.n) = 1",
    "optional": f"SELECT x.j, q.c FROM x LEFT JOIN ({GROUPS}) AS q ON q.n = x.m AND scale(q.n) = 1",
    "exists": "SELECT j FROM x WHERE EXISTS (SELECT FROM w WHERE w.n = x.m GROUP BY w.n HAVING scale(w.n) = 0)",
    "in": "SELECT j FROM x WHERE m IN (SELECT n FROM w GROUP BY n HAVING scale(n) = 1 AND count(*) = 4)",
    "lateral": "SELECT x.j, q.c FROM x, LATERAL (SELECT count(*) AS c FROM w WHERE w.n = x.m GROUP BY w.n "
    "HAVING scale(w.n) = 1) AS q",
    "correlated": "SELECT x.j, q.c FROM x, LATERAL (SELECT count(*) AS c FROM w WHERE w.n = x.m GROUP BY w.n "
    "HAVING scale(w.n) = x.j) AS q",
    "computed as a whole": "WITH q AS MATERIALIZED (SELECT n, id, count(*) OVER (PARTITION BY n) AS c FROM w) "
    "SELECT * FROM q WHERE scale(n) = 1",
    "a view once": "WITH q AS (SELECT n, count(*) AS c FROM w GROUP BY n) SELECT * FROM q WHERE scale(n) = 1",
}
CHANGES = [
    "UPDATE w SET n = n * 1.0 WHERE id < 4; INSERT INTO w VALUES (99, 1.0, 'a ', 0, 1); DELETE FROM w WHERE id = 8",
    "DELETE FROM w WHERE n::text = '1.0'; INSERT INTO x VALUES (1.0, 9), (2.0, 8); UPDATE w SET f = 0, b = 'a '",
]


@pytest.mark.spark
def test_a_condition_on_how_a_key_is_written_is_evaluated_before_rows_are_grouped(law: Law) -> None:
    law.change(WRITTEN)
    law.holds_for(ON_KEYS, CHANGES)
