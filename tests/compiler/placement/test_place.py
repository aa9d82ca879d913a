"""Placing expressions: what may raise is raised only for rows that a join keeps."""

from __future__ import annotations

import psycopg
import pytest
from tests.law.conftest import Law, law

from millstream.client import Millstream
from millstream.errors import MillstreamError, RefreshFailed
from millstream.testing import oracle

__all__ = ["law"]  # a fixture

SETUP = """
    CREATE TABLE t (id int PRIMARY KEY, n int, m int, z int, d date, f float8, word text);
    CREATE TABLE u (id int PRIMARY KEY, m int);
    CREATE TABLE v (k int, y int);
    INSERT INTO t SELECT i, i, i % 3, 1 + i % 2, '2020-01-01', i, i FROM generate_series(1, 12) AS i;
    INSERT INTO t VALUES (98, -2147483648, -1, 0, '5874897-12-31', 1e300, 'none'),
                         (99, 2000000000, 2000000000, 0, '-infinity', 1e300, '');
    INSERT INTO u SELECT i, i % 4 FROM generate_series(1, 8) AS i;
    INSERT INTO v SELECT i, i FROM generate_series(1, 20) AS i;
    INSERT INTO v VALUES (98, 1), (98, 2), (99, 3), (99, 4);
"""
OVER = "FROM t JOIN u ON t.id = u.id"
QUERIES = {
    "an argument": f"SELECT u.m, sum(t.n * t.m) AS s, max(-t.n + 2) AS x {OVER} GROUP BY u.m",
    "an argument across": f"SELECT u.m, sum(t.n * t.m + u.id) AS s, sum(t.n * u.m) AS x {OVER} GROUP BY u.m",
    "a key": f"SELECT t.n + t.m AS k, count(*) AS c, min(t.n) AS x {OVER} GROUP BY t.n + t.m",
    "each once": f"SELECT DISTINCT t.n / t.z AS k {OVER}",
    "FILTER": f"SELECT u.m, count(*) FILTER (WHERE t.n * t.m > 5) AS c {OVER} GROUP BY u.m",
    "days": f"SELECT u.m, max(t.d + 5) AS x, sum(abs(t.n)) AS s {OVER} GROUP BY u.m",
    "floats": f"SELECT u.m, max(t.f * t.f) AS s {OVER} GROUP BY u.m",
    "a condition": f"SELECT u.id {OVER} WHERE t.n / t.z > u.m",
    "a condition of another kind": f"SELECT u.id {OVER} WHERE t.word::int > u.m",
    "a condition below a count": f"SELECT u.m, count(*) AS c {OVER} WHERE t.n * t.m > u.m GROUP BY u.m",
    "ON of an outer join": "SELECT u.id, t.id AS tid FROM u LEFT JOIN t ON t.id = u.id AND t.n / t.z > u.m",
    "EXISTS": "SELECT u.id FROM u WHERE EXISTS (SELECT FROM t WHERE t.id = u.id AND t.n / t.z > u.m)",
    "a union": f"SELECT t.n / t.z AS x {OVER} UNION ALL SELECT u.m FROM u",
    "a union of another kind": f"SELECT t.word::int AS x {OVER} UNION ALL SELECT u.m FROM u",
    "a scalar subquery": "SELECT u.m, sum(q.x) AS s FROM u JOIN (SELECT t.id, "
    "(SELECT v.y FROM v WHERE v.k = t.id) AS x FROM t) AS q ON q.id = u.id GROUP BY u.m",
}
CHANGES = (
    # Of row 1 the old product, and the new one, are in range; the products of old and new values
    # are not.
    "UPDATE t SET n = 2000000000 WHERE id = 1; UPDATE u SET m = 0 WHERE id = 1; UPDATE t SET n = 5, m = 2 WHERE id = 5",
    "UPDATE t SET n = 1, m = 0 WHERE id = 1; UPDATE u SET m = 2000000000 WHERE id = 1; INSERT INTO u VALUES (11, 1)",
    "INSERT INTO t VALUES (97, 2147483647, 2147483647, 0, 'infinity', -1e300, 'x'); DELETE FROM t WHERE id IN (3, 98)",
)
# For each a row of the join for which PostgreSQL raises an error too.
RAISED = {
    "an argument": "integer out of range",
    "each once": "division by zero",
    "a condition": "division by zero",
    "a union": "division by zero",
    "a scalar subquery": "more than one row returned",
}


@pytest.mark.spark
def test_nothing_is_raised_for_rows_that_a_join_discards(law: Law) -> None:
    law.change(SETUP)
    law.holds_for(QUERIES, CHANGES)


@pytest.mark.spark
def test_what_is_raised_for_a_row_of_the_join_fails_the_refresh_until_the_row_goes(
    law: Law,
) -> None:
    law.change(SETUP)
    for number, what in enumerate(RAISED):
        law.create(f"st_{number}", QUERIES[what])
    law.change("INSERT INTO u VALUES (99, 1)")
    for number, error in enumerate(RAISED.values()):
        with pytest.raises(RefreshFailed, match=error):
            law.ms.refresh(f"st_{number}")
    law.change("UPDATE u SET id = 9 WHERE id = 99")
    law.refresh_all()


GUARDED = {
    "a cast": "SELECT b.g, sum(a.txt::int) AS s FROM a JOIN b ON b.id = a.b WHERE b.kind = 'number' GROUP BY b.g",
    "a division": "SELECT count(a.x / a.y) AS n, max(a.x / a.y) AS m FROM a JOIN b ON b.id = a.b AND b.kind = 'number'",
    "a filter": "SELECT b.g, count(*) FILTER (WHERE a.txt::int > 1) AS n FROM a JOIN b ON b.id = a.b "
    "WHERE b.kind = 'number' GROUP BY b.g",
    "a key": "SELECT a.txt::int AS k, count(*) AS n FROM a JOIN b ON b.id = a.b WHERE b.kind = 'number' "
    "GROUP BY a.txt::int",
    "a partition": "SELECT a.id, rank() OVER (PARTITION BY a.x / a.y ORDER BY a.txt::int, a.id) AS k FROM a "
    "JOIN b ON b.id = a.b WHERE b.kind = 'number'",
    "a semi-join": "SELECT sum(a.txt::int) AS s FROM a WHERE EXISTS "
    "(SELECT FROM b WHERE b.id = a.b AND b.kind = 'number')",
}


@pytest.mark.spark
@pytest.mark.parametrize("what", GUARDED)
def test_what_a_join_leaves_out_is_not_computed_with(
    ms: Millstream, writer: psycopg.Connection, what: str
) -> None:
    """A cast or a division raised an error for rows that the join discards."""
    writer.execute(
        "CREATE TABLE a (id int PRIMARY KEY, b int, txt text, x int, y int); CREATE INDEX ON a (b)"
    )
    writer.execute("CREATE TABLE b (id int PRIMARY KEY, kind text, g int)")
    writer.execute("INSERT INTO b VALUES (1, 'number', 1), (2, 'word', 1), (3, 'number', 2)")
    writer.execute(
        "INSERT INTO a VALUES (1, 1, '5', 6, 3), (2, 2, 'five', 6, 0), (3, 3, '7', 8, 2), (4, 9, '', 1, 0)"
    )
    ms.create_stream_table("st", GUARDED[what], refresh_mode="DIFFERENTIAL")
    for change in (
        "INSERT INTO a VALUES (5, 2, 'six', 1, 0), (6, 1, '12', 9, 3); UPDATE a SET txt = 'seven' WHERE id = 2",
        "UPDATE b SET kind = 'word' WHERE id = 3; DELETE FROM a WHERE id = 1",
        "DELETE FROM a WHERE id IN (2, 5); UPDATE b SET kind = 'number' WHERE id = 2",
    ):
        writer.execute(change)
        assert ms.refresh("st").action == "DIFFERENTIAL"
        oracle.check(ms.app.conn, GUARDED[what], "st")
    writer.execute("INSERT INTO a VALUES (7, 1, 'eight', 1, 0)")
    with pytest.raises(MillstreamError):
        ms.refresh("st")
