"""Sums, averages and extremes of numerics of any size, NaN and the infinities too."""

from __future__ import annotations

import psycopg
import pytest
from tests.law.conftest import Law, law

from millstream.client import Millstream
from millstream.errors import RefreshFailed
from millstream.testing import oracle

__all__ = ["law"]  # a fixture

VALUES = [
    "NaN", "Infinity", "-Infinity", "1e40", "-1e40", "1e-40", "-1e-60", "9e19", "-9.9e19", "1e20", "9" * 130_000,
    "1e-16383", "123456789012345678901234567890.123456789012345678901234567890",
]  # fmt: skip
TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, g int, n numeric, v numeric, d numeric(12, 2), w numeric(38, 4));
    CREATE TABLE u (id int PRIMARY KEY, m numeric, e numeric(10, 4));
    INSERT INTO t SELECT x, x % 20, x * 1.25, x * 1.25, x * 1.25, x * 1.25 FROM generate_series(1, 40) AS x;
    INSERT INTO u SELECT x, x * 2.5, x * 2.5 FROM generate_series(0, 20) AS x;
    CREATE TABLE odd (i int PRIMARY KEY, x numeric);
"""
# Each value comes to a group of its own and meets others in some; becomes another; goes.
CHANGES = [
    """
    INSERT INTO t SELECT 100 + i, i, x, CASE WHEN abs(x) < 1e50 OR x IN ('NaN', 'Infinity', '-Infinity') THEN x END,
                         CASE WHEN x IN ('NaN', 'Infinity') THEN 'NaN' ELSE 9999999999.99 END,
                         CASE WHEN x = 'NaN' THEN x ELSE 9999999999999999999999999999999999.9999 END FROM odd;
    INSERT INTO t (id, g, n, w) SELECT 200 + i, i % 3, x, -9999999999999999999999999999999999.9999 FROM odd;
    INSERT INTO u SELECT 100 + i, x, CASE WHEN x = 'NaN' THEN x END FROM odd
    """,
    """
    UPDATE t SET n = x, d = CASE WHEN i % 3 = 0 THEN 'NaN' ELSE 1.0 END, w = CASE WHEN i % 3 = 1 THEN 'NaN' ELSE w END
    FROM odd WHERE t.id = 100 + (i + 1) % 13;
    UPDATE t SET n = 'Infinity' WHERE id = 3; UPDATE t SET n = '-Infinity', d = 'NaN' WHERE id = 23;
    UPDATE u SET m = 'NaN', e = 'NaN' WHERE id = 4; DELETE FROM t WHERE id > 205; DELETE FROM u WHERE id > 105
    """,
    "DELETE FROM t WHERE id >= 100; UPDATE t SET n = 1 WHERE id = 3; DELETE FROM u WHERE id >= 100",
]
QUERIES = {
    "groups": "SELECT g, sum(n) AS s, avg(n) AS a, count(n) AS c, min(n) AS l, max(n) AS m, sum(n * 3 - 1) AS t, "
    "sum(-n) FILTER (WHERE id % 2 = 0) AS f FROM t GROUP BY g",
    "everything": "SELECT sum(n) AS s, avg(n) AS a, max(n) AS m, sum(w) AS w, avg(d) AS d FROM t WHERE id <> 23",
    "declared digits": "SELECT g, sum(d) AS s, avg(d) AS a, min(d) AS l, max(d) AS m, sum(d * 2) AS t, sum(w) AS w, "
    "avg(w) AS v, min(w) AS x, max(w) AS y FROM t GROUP BY g",
    "other aggregates": "SELECT g, stddev(v) AS d, variance(v) AS v, sum(DISTINCT n) AS s, count(DISTINCT n) AS c, "
    "var_pop(d) AS p FROM t GROUP BY g",
    "keys": "SELECT n, count(*) AS c FROM t GROUP BY n",
    "declared keys": "SELECT d, sum(n) AS s FROM t GROUP BY d",
    "each once": "SELECT DISTINCT n, d FROM t",
    "joined": "SELECT t.id, u.id AS k FROM t JOIN u ON u.m = t.n",
    "joined by declared digits": "SELECT t.id, u.id AS k FROM t JOIN u ON u.e = t.d",
    "compared": "SELECT t.id, u.id AS k FROM t JOIN u ON u.id = t.g AND (u.m > t.n OR u.e <= t.d)",
    "filtered": "SELECT id, n, w FROM t WHERE n > 5 AND d <> 1",
    "over a join": "SELECT u.id, sum(t.n) AS s, avg(t.d) AS d, sum(t.n * u.id) AS p, avg(t.n * u.e - t.d) AS a, "
    "sum(-(t.w + u.id)) AS w FROM u LEFT JOIN t ON t.g = u.id GROUP BY u.id",
    "a sum of sums": "SELECT sum(s) AS s FROM (SELECT g, sum(n) AS s FROM t GROUP BY g) AS q WHERE s < 1e300",
    "united": "SELECT k, sum(x) AS s FROM (SELECT g AS k, n AS x FROM t UNION ALL SELECT id, m FROM u) AS q GROUP BY k",
    "windows": "SELECT id, sum(n) OVER (PARTITION BY g ORDER BY id) AS s FROM t",
    "the first": "SELECT id, n FROM t ORDER BY n DESC, id LIMIT 4",
}


@pytest.mark.spark
def test_numerics_of_any_size_are_added_and_compared(law: Law) -> None:
    """One NaN, infinity or number of 21 digits failed the refresh of a sum, and soon suspended the
    table (MS403).
    """
    law.change(TABLES)
    law.conn.cursor().executemany("INSERT INTO odd VALUES (%s, %s)", list(enumerate(VALUES)))
    law.holds_for(QUERIES, CHANGES)


@pytest.mark.spark
def test_having_guards_the_select_list(ms: Millstream, writer: psycopg.Connection) -> None:
    """The select list was computed for groups that HAVING drops: a division by zero."""
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, x int, y int)")
    writer.execute("INSERT INTO t VALUES (1, 1, 4, 2), (2, 2, 5, 0)")
    query = "SELECT g, sum(x) / sum(y) AS q FROM t GROUP BY g HAVING sum(y) <> 0"
    ms.create_stream_table("st", query)
    writer.execute("UPDATE t SET y = 0 WHERE id = 1; INSERT INTO t VALUES (3, 2, 1, 3)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, query, "st")
    assert writer.execute("SELECT * FROM st").fetchall() == [(2, 2)]


@pytest.mark.spark
def test_a_sum_that_leaves_its_range_is_an_error(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    query = "SELECT g, sum(v) AS s, avg(v) AS m FROM f GROUP BY g"
    writer.execute(
        "CREATE TABLE f (id int PRIMARY KEY, g int, v float8); INSERT INTO f VALUES (1, 1, 1e308)"
    )
    ms.create_stream_table("st", query, schedule="1h")
    writer.execute("INSERT INTO f VALUES (2, 1, 1e308)")
    with pytest.raises(RefreshFailed, match="out of range"):
        ms.refresh("st")
    writer.execute("UPDATE f SET v = 'Infinity' WHERE id = 2")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, query, "st")
