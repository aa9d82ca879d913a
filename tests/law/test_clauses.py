"""Clauses of every kind, each in a query that once went wrong, or nearly: all are kept side by
side.
"""

from __future__ import annotations

import psycopg
import pytest
from tests.service.conftest import exact_through

from millstream import Millstream

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, a int, x real, j json, word text);
    CREATE TABLE u (a int, b int);
    INSERT INTO t SELECT n, n % 4, n / 8.0, to_json(n % 3), 'w' || n % 5 FROM generate_series(1, 40) AS n;
    INSERT INTO u SELECT n % 6, n % 5 FROM generate_series(1, 30) AS n;
"""
CHANGE = """
    INSERT INTO t VALUES (50, 2, 0.1, '7', 'w9'), (51, NULL, 0.2, NULL, NULL);
    UPDATE t SET a = 3, x = x + 0.3 WHERE id IN (3, 4);
    DELETE FROM t WHERE id = 8;
    INSERT INTO u VALUES (9, NULL), (1, 4);
    DELETE FROM u WHERE b = 2;
"""
QUERIES = {
    "a text that looks like a column of ours": """SELECT a, '"g"."k0"' || max(word) AS m FROM t GROUP BY a""",
    "sums of real": "SELECT a, sum(x) AS s, avg(x) AS m FROM t GROUP BY a",
    "rows without columns": "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE b > 3 LIMIT 1)",
    "the first of each beside json": "SELECT DISTINCT ON (a) a, id, j FROM t ORDER BY a, id DESC",
    "ties in the order of their type": "SELECT DISTINCT ON (a) a, id FROM t ORDER BY a",
    "a window over nothing": "SELECT count(*) OVER () AS n FROM t",
    "grouping of one set": "SELECT a, grouping(a) AS g, count(*) AS n FROM t GROUP BY a",
    "different from all": "SELECT id FROM t WHERE a <> ALL (SELECT b FROM u WHERE b IS NOT NULL)",
    "a unique key that equals a constant": "SELECT id, (SELECT word FROM t AS o WHERE o.id = 2) AS w FROM t",
    "one name twice": "SELECT q.x, q.y FROM (SELECT a AS n, a AS n FROM t) AS q (x, y)",
    "constants in an order": "SELECT id, 5 AS five FROM t ORDER BY 2, id LIMIT 4",
    "json of a group": "SELECT a, jsonb_agg(word ORDER BY id) AS w, json_object_agg(id, a ORDER BY id) AS o "
    "FROM t GROUP BY a",
    "printed together": "SELECT id, concat(word, '-', a) AS c, format('%s:%s', id, word) AS f FROM t WHERE id < 9",
    "each once where nothing passes": "SELECT a, count(DISTINCT word) FILTER (WHERE x > 4) AS n FROM t GROUP BY a",
    "each once of many kinds": "SELECT count(DISTINCT a) AS n, sum(DISTINCT a) AS s, avg(DISTINCT id) AS v, "
    "count(DISTINCT word) FILTER (WHERE a = 1) AS w, max(id) AS m, count(*) AS c FROM t",
    "each pair once": "SELECT a, count(DISTINCT (a, word)) AS n FROM t GROUP BY a",
    "each once of a join": "SELECT t.a, count(DISTINCT u.b) AS n, sum(t.id) AS s FROM t JOIN u ON u.a = t.a "
    "GROUP BY t.a HAVING count(DISTINCT u.b) > 1",
    "constants joined": "SELECT t.id, v.w FROM t JOIN (VALUES (1, 'a'), (NULL, 'c')) AS v (n, w) ON v.n = t.a",
    "one of these": "SELECT id FROM t WHERE a IN (VALUES (1), (2))",
    "constants that meet nothing": "WITH w (n) AS (VALUES (1), (99)) "
    "SELECT w.n, count(t.id) AS c FROM w LEFT JOIN t ON t.a = w.n GROUP BY w.n",
    "a row of its own": "SELECT a FROM t UNION SELECT 77 EXCEPT VALUES (2)",
    "a value from nowhere": "SELECT id, (SELECT 5) + a AS n FROM t",
    "from a series": "SELECT g.n, t.id FROM generate_series(1, 5) AS g (n) LEFT JOIN t ON t.a = g.n",
    "in step": "SELECT id, generate_series(1, a) AS n, unnest(ARRAY[a, id]) + 1 AS u FROM t",
    "in step in FROM": "SELECT t.id, s.n, s.u FROM t, ROWS FROM (generate_series(1, t.a), unnest(ARRAY[t.a, t.id])) "
    "AS s (n, u)",
    "by what a function returns": "SELECT unnest(ARRAY[a, a + 1]) AS n, count(*) AS c, max(id) AS m FROM t GROUP BY 1",
    "as often as counted": "SELECT a, generate_series(1, count(*)) AS n FROM t GROUP BY a",
    "a set over a join": "SELECT DISTINCT unnest(ARRAY[t.a, u.b]) AS n FROM t JOIN u ON u.a = t.a",
    "a set beside a window": "SELECT id, row_number() OVER (ORDER BY id) AS n, unnest(ARRAY[1, 2]) AS u FROM t",
    "the first of a set": "SELECT id, unnest(ARRAY[a, a]) AS n FROM t ORDER BY 2 DESC NULLS LAST, 1 LIMIT 5",
    "no row of an aggregate": "SELECT id, (SELECT count(*) FROM u LIMIT 0) AS n FROM t",
    "WITH in a value": "SELECT id, (WITH q AS (SELECT b FROM u) SELECT sum(b) FROM q) AS n FROM t",
    "rows without columns, united": "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE b > 3 UNION SELECT FROM u)",
    "all alternatives in one": "SELECT id FROM t JOIN u ON (t.a = u.a AND u.b = 1) OR (t.a = u.a AND t.id > 9)",
}


def test_each_is_exact(ms: Millstream, database: str, writer: psycopg.Connection) -> None:
    """By `verify`, which gives rows that tie an order, as our plans do; PostgreSQL's own answer
    shows any of them.
    """
    writer.execute(TABLES)
    exact_through(ms, database, QUERIES, [CHANGE])
