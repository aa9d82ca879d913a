"""Grammar that people write: each form is kept, differentially, and equals PostgreSQL's answer."""

from __future__ import annotations

import psycopg
import pytest
from tests.service.conftest import exact_through

from millstream import Millstream

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, a int, v varchar(9), word text, x float8);
    CREATE TABLE u (id int PRIMARY KEY, a int, word text);
    INSERT INTO t SELECT n, n % 4, 'v' || n % 5, 'w' || n % 3, n / 8.0 FROM generate_series(1, 30) AS n;
    INSERT INTO u SELECT n * 3, n % 3, 'w' || n % 4 FROM generate_series(1, 15) AS n;
"""
CHANGE = """
    INSERT INTO t VALUES (50, 2, 'v1', 'w9', 1), (51, NULL, NULL, NULL, NULL);
    UPDATE t SET a = 3, v = 'v2', x = x + 0.5 WHERE id IN (3, 4);
    DELETE FROM t WHERE id = 8;
    INSERT INTO u VALUES (50, NULL, 'w1'), (1, 4, NULL);
    DELETE FROM u WHERE a = 2;
"""
QUERIES = {
    "varchar in a list": "SELECT id FROM t WHERE v IN ('v1', 'v2')",
    "varchar not in a list, across tables": "SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON u.a = t.a "
    "AND t.v NOT IN ('v1', 'v2')",
    "varchar in a list, in CASE and FILTER": "SELECT a, count(*) FILTER (WHERE v IN ('v1', 'v3')) AS n, "
    "max(CASE WHEN v IN ('v2', 'v4') THEN id END) AS m FROM t GROUP BY a",
    "frames without BETWEEN": "SELECT id, sum(id) OVER (PARTITION BY a ORDER BY id ROWS 2 PRECEDING) AS r, "
    "count(*) OVER (PARTITION BY a ORDER BY id RANGE UNBOUNDED PRECEDING) AS n, "
    "max(id) OVER (PARTITION BY a ORDER BY v GROUPS 1 PRECEDING EXCLUDE TIES) AS m FROM t",
    "a window that extends a named one": "SELECT id, sum(id) OVER (w ORDER BY id) AS s, "
    "sum(id) OVER (w ORDER BY id ROWS 1 PRECEDING) AS r FROM t WINDOW w AS (PARTITION BY a)",
    "a named window that extends another": "SELECT id, sum(id) OVER w2 AS s, count(*) OVER (w2 ROWS 1 PRECEDING) AS n "
    "FROM t WINDOW w AS (PARTITION BY a), w2 AS (w ORDER BY id)",
    "several percentiles": "SELECT a, percentile_cont(ARRAY[0.25, 0.5]) WITHIN GROUP (ORDER BY x) AS p FROM t "
    "GROUP BY a",
    "merged columns with a name": "SELECT j.id, t.word, u.a FROM t FULL JOIN u USING (id) AS j",
}


def test_each_is_exact(ms: Millstream, database: str, writer: psycopg.Connection) -> None:
    """By `verify`, which gives rows that tie an order, as our plans do."""
    writer.execute(TABLES)
    exact_through(ms, database, QUERIES, [CHANGE])
