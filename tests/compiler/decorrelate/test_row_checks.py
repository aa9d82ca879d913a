"""A scalar subquery of several rows raises its error for rows that LIMIT leaves, and for no others."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Named, Project, Scan
from millstream.compiler.clauses import limit
from millstream.compiler.decorrelate.row_checks import without_row_checks
from millstream.errors import MillstreamError
from millstream.testing.planning_server import table

__all__ = ["law"]  # a fixture

T = Scan(table("t", "id int4, n int4, v int4", key="id"), "t")
SUBQUERY = '(SELECT "t"."v" FROM generate_series(CAST(1 AS BIGINT), "t"."n"))'


def projected(expression: str) -> Project:
    return Project(T, (Named("id", Expr.ref("t", "id")), Named("x", Expr.parse(expression))), "q")


def test_the_value_is_read_below_and_checked_above() -> None:
    below, checked = without_row_checks(projected(f"{SUBQUERY} + 1"), [Expr.ref("q", "id")])
    assert [str(ref) for ref in below.columns] == ["q.id", "q.x", "q.checked_0", "q.checked_1"]
    assert isinstance(below, Project)
    assert not any(output.expr.has_subquery for output in below.outputs)
    assert list(checked) == [Ref("q", "x")]
    assert checked[Ref("q", "x")].has_subquery
    assert checked[Ref("q", "x")].refs == {Ref("q", "checked_0"), Ref("q", "checked_1")}


def test_through_projections_above_it() -> None:
    above = Project(projected(SUBQUERY), (Named("y", Expr.ref("q", "x")),), "p")
    below, checked = without_row_checks(above, [])
    assert [str(ref) for ref in below.columns][:1] == ["p.y"]
    assert list(checked) == [Ref("p", "y")]


def test_what_the_rows_are_sorted_by_is_checked_for_all_of_them() -> None:
    relation = projected(SUBQUERY)
    assert without_row_checks(relation, [Expr.ref("q", "x")]) == (relation, {})


def test_other_projections_stay_as_they_are() -> None:
    relation = projected('"t"."v" + 1')
    assert without_row_checks(relation, []) == (relation, {})


SETUP = """
    CREATE TABLE t (id int PRIMARY KEY, g int);
    CREATE TABLE v (k int, y int);
    INSERT INTO t SELECT i, i % 4 FROM generate_series(1, 12) AS i;
    INSERT INTO t VALUES (98, 1), (99, 2);
    INSERT INTO v SELECT i, i % 5 FROM generate_series(1, 12) AS i;
    INSERT INTO v VALUES (98, 1), (98, 2), (99, 3), (99, 4);
"""
OF_T = "(SELECT v.y FROM v WHERE v.k = t.id)"
QUERIES = {
    "the first rows": f"SELECT id, {OF_T} AS x FROM t ORDER BY id LIMIT 6",
    "joined": f"SELECT q.x, u.g FROM (SELECT id, {OF_T} AS x FROM t ORDER BY id LIMIT 6) AS q "
    "JOIN t AS u ON u.id = q.x",
    "grouped": f"SELECT q.x, count(*) AS n FROM (SELECT id, {OF_T} AS x FROM t ORDER BY id LIMIT 6) AS q GROUP BY q.x",
    "for each row": f"SELECT u.id, l.x FROM t AS u, "
    f"LATERAL (SELECT {OF_T} AS x FROM t WHERE t.g = u.g ORDER BY t.id LIMIT 2) AS l",
    "divided in groups": "SELECT q.id, q.s FROM (SELECT id, sum(10 / (99 - id)) AS s FROM t GROUP BY id) AS q "
    "WHERE q.id < 50",
    "divided in distinct rows": "SELECT q.id, q.s FROM (SELECT DISTINCT id, 10 / (99 - id) AS s FROM t) AS q "
    "WHERE q.id < 50",
    "divided in partitions": "SELECT q.id, q.s FROM (SELECT id, sum(10 / (99 - id)) OVER (PARTITION BY id) AS s "
    "FROM t) AS q WHERE q.id < 50",
}


@pytest.mark.spark
def test_rows_that_are_left_out_raise_nothing_and_those_that_come_in_do(law: Law) -> None:
    law.change(SETUP)
    law.holds_for(
        QUERIES, ["DELETE FROM t WHERE id IN (1, 6); INSERT INTO v VALUES (11, 8), (1, 9)"]
    )
    law.change("INSERT INTO v VALUES (2, 9)")
    law.ms.app.witness = None
    with pytest.raises(MillstreamError, match="more than one row"):
        law.ms.refresh("st_0")


@pytest.mark.spark
def test_checked_below_the_limit_it_raises_for_rows_that_are_left_out(
    law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    law.change(SETUP)
    monkeypatch.setattr(limit, "without_row_checks", lambda relation, sorted_by: (relation, {}))
    with pytest.raises(MillstreamError, match="more than one row"):
        law.create("first_rows", QUERIES["the first rows"])
