"""LATERAL and subqueries that are given values by the rows around them: exact through changes, or
refused aloud.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from tests.service.conftest import exact_through

import millstream
from millstream import Millstream
from millstream.errors import RefreshFailed, Unsupported

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, a int, b int, list int[]);
    CREATE TABLE u (a int, b int, word text);
    CREATE TABLE w (a int, b int);
    INSERT INTO t SELECT n, nullif(n % 5, 4), n % 3, ARRAY[n % 3, n % 4] FROM generate_series(1, 14) AS n;
    INSERT INTO u SELECT nullif(n % 6, 5), n % 4, 'w' || n % 3 FROM generate_series(1, 16) AS n;
    INSERT INTO w SELECT n % 4, nullif(n % 3, 2) FROM generate_series(1, 9) AS n;
    CREATE INDEX ON u (a);
"""
CHANGES = (
    """
    INSERT INTO t VALUES (50, 2, 7, '{1}'), (51, NULL, NULL, NULL), (52, 9, 1, '{}');
    INSERT INTO u VALUES (9, NULL, 'w9'), (1, 4, 'w1'), (NULL, 3, NULL);
    DELETE FROM w WHERE b = 1;
    """,
    """
    UPDATE t SET a = 3, b = b + 1 WHERE id IN (3, 4, 51);
    DELETE FROM t WHERE id IN (8, 52);
    UPDATE u SET b = 5 WHERE a = 2;
    INSERT INTO w VALUES (2, 2), (NULL, 1);
    """,
    "DELETE FROM u; DELETE FROM t WHERE id < 3",
)
KEPT = {
    "the first of each": "SELECT t.id, q.b, q.word FROM t, "
    "LATERAL (SELECT b, word FROM u WHERE u.a = t.a ORDER BY b DESC, word LIMIT 2) AS q",
    "the first of each, or none": "SELECT t.id, q.b FROM t "
    "LEFT JOIN LATERAL (SELECT b FROM u WHERE u.a < t.b ORDER BY b OFFSET 1 LIMIT 1) AS q ON q.b > t.a",
    "with ties": "SELECT t.id, q.b, q.word FROM t, "
    "LATERAL (SELECT b, word FROM u WHERE u.a > t.a ORDER BY b FETCH FIRST 2 ROWS WITH TIES) AS q",
    "aggregates of one row": "SELECT t.id, q.n, q.s FROM t, "
    "LATERAL (SELECT count(*) AS n, sum(b) AS s FROM u WHERE u.a = t.a) AS q",
    "aggregates of one row, by more than equality": "SELECT t.id, q.n, q.s FROM t "
    "LEFT JOIN LATERAL (SELECT count(*) AS n, sum(b) AS s FROM u WHERE u.a > t.a) AS q ON q.n < 9",
    "a select list": "SELECT t.id, q.x FROM t, LATERAL (SELECT t.a + t.b AS x) AS q WHERE q.x > 1",
    "columns as rows": "SELECT t.id, q.x FROM t, LATERAL (SELECT t.a UNION ALL SELECT t.b) AS q (x)",
    "set operations": "SELECT t.id, q.x FROM t, LATERAL (SELECT u.b FROM u WHERE u.a = t.a "
    "EXCEPT SELECT w.b FROM w WHERE w.a > t.b) AS q (x)",
    "grouping sets": "SELECT t.id, q.b, q.word, q.n FROM t, "
    "LATERAL (SELECT b, word, count(*) AS n FROM u WHERE u.a > t.a GROUP BY ROLLUP (b, word)) AS q",
    "windows": "SELECT t.id, q.r FROM t, "
    "LATERAL (SELECT sum(b) OVER (PARTITION BY word) AS r FROM u WHERE u.a <> t.a) AS q",
    "each once": "SELECT t.id, q.b FROM t, LATERAL (SELECT DISTINCT b FROM u WHERE u.a >= t.a) AS q",
    "one after the other": "SELECT t.id, q.b, r.n FROM t, LATERAL (SELECT b FROM u WHERE u.a = t.a ORDER BY b LIMIT 1) "
    "AS q, LATERAL (SELECT count(*) AS n FROM w WHERE w.b < q.b) AS r",
    "a column of an enclosing query, handed on": "SELECT id FROM t WHERE EXISTS (SELECT FROM w, "
    "LATERAL (SELECT t.a, u.b FROM u WHERE u.a = w.a) AS q, LATERAL (SELECT count(*) AS n FROM w WHERE w.b = q.a) AS r "
    "WHERE r.n > q.b)",
    "one inside the other": "SELECT t.id, q.z FROM t, LATERAL (SELECT r.z FROM u, "
    "LATERAL (SELECT w.b + t.b AS z FROM w WHERE w.a = u.a AND w.b >= t.b) AS r WHERE u.b > t.b) AS q",
    "of an optional row": "SELECT t.id, q.n FROM t LEFT JOIN w ON w.a = t.a, "
    "LATERAL (SELECT count(*) AS n FROM u WHERE u.b > w.b) AS q",
    "WITH inside": "SELECT t.id, q.n FROM t, LATERAL (WITH x AS (SELECT u.b FROM u WHERE u.a > t.a) "
    "SELECT count(*) AS n FROM x JOIN x AS y ON x.b = y.b) AS q",
    "WITH over WITH inside": "SELECT t.id, q.n FROM t, LATERAL (WITH x AS (SELECT u.b FROM u WHERE u.a > t.a), "
    "y AS (SELECT x.b FROM x WHERE x.b >= t.b) SELECT count(*) AS n FROM y) AS q",
    "WITH of the same name inside": "SELECT t.id, q.n, q.m FROM t, "
    "LATERAL (WITH x AS (SELECT u.b FROM u WHERE u.a > t.a) SELECT count(*) AS n, "
    "(SELECT count(*) FROM (WITH x AS (SELECT w.b FROM w) SELECT x.b FROM x) AS z) AS m FROM x) AS q",
    "outer joins inside": "SELECT t.id, q.n, q.m FROM t, LATERAL (SELECT count(u.b) AS n, count(w.b) AS m "
    "FROM u FULL JOIN w ON w.a = u.a AND w.b > t.b) AS q",
    "a function inside": "SELECT t.id, q.s FROM t, LATERAL (SELECT sum(x) AS s FROM unnest(t.list) AS l (x)) AS q",
    "names before the parentheses": "SELECT t.id, q.b FROM w, t LEFT JOIN LATERAL "
    "(SELECT u.b FROM u WHERE u.a = w.a AND u.b > t.b) AS q ON true",
    "a count tied by more than equality": "SELECT id, (SELECT count(*) FROM u WHERE u.a < t.a) AS n FROM t",
    "HAVING": "SELECT id, (SELECT sum(b) FROM u WHERE u.a = t.a HAVING count(*) > 2) AS n FROM t",
    "the first as a value": "SELECT id, (SELECT b FROM u WHERE u.a = t.a ORDER BY b DESC LIMIT 1) AS n FROM t",
    "of groups": "SELECT a, count(*) AS n, (SELECT count(*) FROM u WHERE u.a <= t.a) AS m FROM t GROUP BY a",
    "in HAVING": "SELECT a FROM t GROUP BY a HAVING count(*) > (SELECT count(*) FROM w WHERE w.a > t.a)",
    "ANY and ALL": "SELECT id, b > ALL (SELECT b FROM u WHERE u.a = t.a) AS x, "
    "b <= ANY (SELECT b FROM u WHERE u.a > t.a) AS y, b = ANY (SELECT b FROM u WHERE u.a > t.a) AS z FROM t",
    "EXISTS of groups": "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE u.a = t.a GROUP BY b HAVING count(*) > 1)",
    "NOT IN of the first": "SELECT id FROM t WHERE b NOT IN (SELECT b FROM u WHERE u.a = t.a ORDER BY b LIMIT 2)",
    "EXISTS after the first": "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE u.a = t.a OFFSET 1)",
    "EXISTS of a union": "SELECT id, EXISTS (SELECT FROM u WHERE u.a = t.a UNION ALL "
    "SELECT FROM w WHERE w.a = t.b) AS x FROM t",
    "two levels": "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE u.a = t.a "
    "AND NOT EXISTS (SELECT FROM w WHERE w.b = u.b AND w.a = t.b))",
    "two levels of aggregates": "SELECT id, (SELECT count(*) FROM u WHERE u.a = t.a "
    "AND u.b > (SELECT min(w.b) FROM w WHERE w.a < t.b)) AS n FROM t",
    "NULLs are equal": "SELECT t.id, u.word FROM t JOIN u ON u.a IS NOT DISTINCT FROM t.a",
    "NULLs are equal, optional": "SELECT t.id, w.b FROM t FULL JOIN w ON w.b IS NOT DISTINCT FROM t.a AND w.a = t.b",
    "NULLs are equal, padded": "SELECT t.id, w.a FROM t LEFT JOIN u ON u.a = t.a "
    "JOIN w ON w.b IS NOT DISTINCT FROM u.b",
    "ON, both sides": "SELECT t.id, u.b FROM t LEFT JOIN u ON u.a = t.a "
    "AND EXISTS (SELECT FROM w WHERE w.b >= t.b AND w.a = u.b)",
    "ON, one side": "SELECT t.id, u.b FROM t FULL JOIN u ON u.a = t.a AND EXISTS (SELECT FROM w WHERE w.b = t.b) "
    "AND u.b IN (SELECT a FROM w)",
    "ON, inner": "SELECT t.id, u.b FROM t JOIN u ON u.a = t.a AND u.b < (SELECT max(w.b) + t.b FROM w WHERE w.a = u.a)",
    "inside aggregates": "SELECT a, sum((SELECT count(*) FROM u WHERE u.a = t.b)) AS s, "
    "count(*) FILTER (WHERE EXISTS (SELECT FROM w WHERE w.a = t.b)) AS n FROM t GROUP BY a",
    "a function and a condition": "SELECT id, l.x FROM t LEFT JOIN unnest(t.list) AS l (x) ON l.x > t.b",
    "a function and a condition, inner": "SELECT id, l.x FROM t JOIN unnest(t.list) AS l (x) ON l.x > t.b",
    "equal values that look different": "SELECT q.id, r.x FROM (SELECT id, CASE WHEN id % 2 = 0 THEN 1.0 ELSE 1.00 END "
    "AS n FROM t) AS q, LATERAL (SELECT q.n::text || u.word AS x FROM u WHERE u.b > q.n) AS r",
    "a function that stands apart": "SELECT t.id, g.n FROM t FULL JOIN generate_series(1, 3) AS g (n) ON g.n = t.a",
    "VALUES of the row": "SELECT t.id, v.what, v.x FROM t, LATERAL (VALUES ('a', t.a), ('b', t.b)) AS v (what, x)",
    "VALUES beside a tie": "SELECT id, (SELECT max(n) FROM u, (VALUES (1), (2)) AS v (n) WHERE n > t.a) AS m FROM t",
    "a set for each row": "SELECT t.id, q.x FROM t, LATERAL (SELECT unnest(t.list) AS x) AS q",
    "is one in the set": "SELECT id FROM t WHERE a IN (SELECT unnest(ARRAY[u.a, u.b]) FROM u WHERE u.b = t.b)",
    "one of several, where there is one": "SELECT id, (SELECT DISTINCT u.a + t.b FROM u WHERE u.a = t.a) AS x FROM t",
}
REFUSED = {
    "FULL JOIN that is correlated with both": "SELECT t.id FROM t FULL JOIN u ON u.a = t.a "
    "AND EXISTS (SELECT FROM w WHERE w.b = t.b AND w.a = u.a)",
    "LIMIT or OFFSET by": "SELECT t.id, q.b FROM t, LATERAL (SELECT b FROM u WHERE u.a = t.a LIMIT t.b) AS q",
    "GROUP BY a subquery": "SELECT count(*) AS n FROM t GROUP BY CUBE ((SELECT max(b) FROM u WHERE u.a = t.a))",
    "an aggregate of the outer query": "SELECT a, (SELECT max(u.b) FROM u WHERE u.b < sum(t.b)) AS m FROM t GROUP BY a",
    "a function in FROM that is joined by USING": "SELECT t.id FROM t LEFT JOIN unnest(t.list) AS l (x) "
    "ON l.x IN (SELECT a FROM u)",
}


@pytest.fixture
def ms(database: str) -> Iterator[Millstream]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    with millstream.connect(database) as client:
        yield client


def test_each_is_exact_through_changes_of_all_tables(ms: Millstream, database: str) -> None:
    exact_through(ms, database, KEPT, CHANGES)


@pytest.mark.parametrize("what", REFUSED)
def test_each_is_refused(ms: Millstream, what: str) -> None:
    with pytest.raises(Unsupported, match=what):
        ms.create_stream_table("st", REFUSED[what])


SEVERAL = "more than one row returned by a subquery used as an expression"
ASKING = {
    "select list": "SELECT id, (SELECT b FROM u WHERE u.a = t.a) AS x FROM t WHERE id < 100",
    "WHERE": "SELECT id FROM t WHERE id < 100 AND b = (SELECT b FROM u WHERE u.a = t.a)",
    "aggregate": "SELECT b, sum((SELECT b FROM u WHERE u.a = t.a)) AS s FROM t WHERE id < 100 GROUP BY b",
    "only where it is asked": "SELECT id, CASE WHEN b > 0 THEN (SELECT b FROM u WHERE u.a < t.a) END AS x FROM t "
    "WHERE id < 100",
}


@pytest.mark.parametrize("what", ASKING)
def test_one_of_several_rows_is_postgresqls_own_error_and_nothing_else_is(
    ms: Millstream, database: str, what: str
) -> None:
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute(
            "DELETE FROM u; DELETE FROM t; INSERT INTO u VALUES (1, 10), (2, 20), (2, 21)"
        )
        writer.execute("INSERT INTO t VALUES (1, 1, 10), (2, NULL, 1), (3, 0, 0), (200, 2, 2)")
        ms.create_stream_table("st", ASKING[what], schedule="1h", refresh_mode="DIFFERENTIAL")
        writer.execute("INSERT INTO u VALUES (4, 1), (4, 2)")
        assert ms.refresh("st").action in ("DIFFERENTIAL", "NO_DATA")
        assert ms.verify("st").ok
        writer.execute("INSERT INTO t VALUES (5, 4, 5), (6, 4, 6)")
        with pytest.raises(psycopg.errors.CardinalityViolation, match=SEVERAL):
            writer.execute(ASKING[what].encode())
        with pytest.raises(RefreshFailed) as caught:
            ms.refresh("st")
        assert SEVERAL in caught.value.detail
        writer.execute("DELETE FROM u WHERE b IN (2, 20, 21); DELETE FROM u WHERE a = 1")
        assert ms.refresh("st").action == "DIFFERENTIAL"
        assert ms.verify("st").ok
