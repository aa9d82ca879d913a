"""Numbers of more digits than Spark's decimals have: quotients, averages, and what somebody wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import psycopg
import pytest
from tests.service.conftest import exact_through

import millstream
from millstream import Millstream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, g int, x numeric(10,2), r numeric(6,4), f numeric);
    CREATE TABLE u (id int PRIMARY KEY, k int, y numeric(8,2), f numeric);
    INSERT INTO t SELECT n, n % 5, n * 1.37, (n % 97) / 1000.0, 1.0 / n FROM generate_series(1, 200) AS n;
    INSERT INTO u SELECT n, n % 2, n * 1.5, n / 7.0 FROM generate_series(0, 5) AS n;
"""
CHANGES = (
    """
    UPDATE t SET x = x + 0.11, r = r + 0.0003, f = f + 1.0 / (id + 3) WHERE id % 10 = 0;
    UPDATE u SET y = y + 1, f = f / 3
    """,
    """
    DELETE FROM t WHERE id % 7 = 0;
    INSERT INTO t VALUES (500, 1, -0.01, NULL, -1e-40), (501, 9, NULL, 0, 12345678901234567890)
    """,
    "DELETE FROM t WHERE g = 9; UPDATE t SET g = 4 WHERE g = 3; UPDATE t SET f = NULL, x = NULL WHERE g = 1",
)
OF_AVERAGES = "(SELECT g, avg(r) AS a FROM t GROUP BY g) AS q"
QUERIES = {
    "a sum of quotients": "SELECT g, sum(x / 3.0) AS s FROM t GROUP BY g",
    "an average of quotients": "SELECT g, avg(x / 7) AS s FROM t GROUP BY g",
    "of all rows": "SELECT sum(1.0 / id) AS s, avg(r / 3) AS a, count(x / 7) AS n FROM t",
    "products of quotients": "SELECT g, sum((r / 3) * (r / 7)) AS s FROM t GROUP BY g",
    "one or the other": "SELECT g, sum(CASE WHEN x > 2 THEN x / 3 ELSE r / 9 END) AS s FROM t GROUP BY g",
    "some of them": "SELECT g, sum(x / 3) FILTER (WHERE id % 3 = 0) AS s FROM t GROUP BY g",
    "a column without digits": "SELECT g, sum(f) AS s, avg(f) AS a FROM t GROUP BY g",
    "extremes": "SELECT g, min(x / 3.0) AS least, max(1.0 / id) AS most FROM t GROUP BY g",
    "a sum of averages": f"SELECT sum(a) AS s, avg(a) AS b, max(a) AS m FROM {OF_AVERAGES}",
    "a sum of variances": "SELECT sum(v) AS s FROM (SELECT g, variance(r) AS v FROM t GROUP BY g) AS q",
    "over a join": "SELECT u.k, sum(t.x / 3.0) AS s FROM t JOIN u ON u.id = t.g GROUP BY u.k",
    "over an optional row": "SELECT u.k, sum(coalesce(t.x / 3, 1)) AS s FROM u LEFT JOIN t ON t.g = u.id GROUP BY u.k",
    "over a union": "SELECT k, sum(v) AS s FROM (SELECT g AS k, x / 3 AS v FROM t "
    "UNION ALL SELECT k, f / 7 FROM u) AS z GROUP BY k",
    "across tables": "SELECT t.g, sum(t.x / 3.0 * u.y) AS s FROM t JOIN u ON u.id = t.g GROUP BY t.g",
    "an average across tables": f"SELECT u.k, sum(q.a * u.y) AS s FROM u JOIN {OF_AVERAGES} ON q.g = u.id GROUP BY u.k",
    "further from the average": f"SELECT t.id FROM t JOIN {OF_AVERAGES} ON q.g = t.g WHERE t.r - q.a > 0.01",
    "further from the average, or none": f"SELECT t.id, q.g FROM t LEFT JOIN {OF_AVERAGES} ON q.g = t.g "
    "AND t.r - round(q.a, 6) > 0.01",
    "further from the average of all": "SELECT id FROM t, (SELECT avg(r) AS a FROM t) AS q WHERE t.r - q.a > 0.01",
    "an average of a window": "SELECT g, sum(x - a) AS s FROM (SELECT g, x, avg(x) OVER (PARTITION BY g) AS a FROM t) "
    "AS w GROUP BY g",
}


@pytest.fixture
def ms(database: str) -> Iterator[Millstream]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    with millstream.connect(database) as client:
        yield client


def test_each_is_exact_to_the_last_digit(ms: Millstream, database: str) -> None:
    exact_through(ms, database, QUERIES, CHANGES)


KEYS = {
    "groups": "SELECT n, count(*) AS c FROM k GROUP BY n",
    "each once": "SELECT DISTINCT n, g FROM k",
    "of a subquery": "SELECT q.n, q.c FROM (SELECT n, count(*) AS c FROM k GROUP BY n) AS q WHERE q.c > 0",
    "met by another": "SELECT k.id, q.n FROM k JOIN (SELECT n, count(*) AS c FROM k GROUP BY n) AS q ON q.n = k.n",
    "sets of groups": "SELECT n, g, count(*) AS c FROM k GROUP BY GROUPING SETS ((n), (g), ())",
    "one after the other": "SELECT n FROM k UNION SELECT n * 10 FROM k",
}
SHOWN = (
    "INSERT INTO k VALUES (6, 1, 3.10), (7, 2, 3.10), (8, 1, 4.1234567), (9, 1, -0.0), (10, 1, NULL)",
    "UPDATE k SET n = trim_scale(n) WHERE n = 2.5; DELETE FROM k WHERE id IN (6, 8)",
    "UPDATE k SET n = 2.5000000 WHERE n = 2.5; UPDATE k SET n = 'NaN' WHERE id = 9; DELETE FROM k WHERE id = 7",
)


ZEROS = {
    "groups": "SELECT f, count(*) AS c FROM k GROUP BY f",
    "smaller numbers": "SELECT r, g, sum(g) AS c FROM k GROUP BY r, g",
    "each once": "SELECT DISTINCT r, f FROM k",
    "of a subquery": "SELECT q.f, 1 / q.c AS x FROM (SELECT f, count(*) AS c FROM k GROUP BY f) AS q",
    "as they are": "SELECT id, f, r FROM k",
    "several alike": "SELECT f, r FROM k",
    "of a join": "SELECT a.f, b.r, b.id FROM k AS a JOIN k AS b ON b.id = a.g",
    "of groups": "SELECT g, sum(f) AS s, avg(f) AS a, min(f) AS least, max(r) AS most, array_agg(f ORDER BY id) AS f "
    "FROM k GROUP BY g",
    "across tables": "SELECT a.f * b.g AS x, count(*) AS c FROM k AS a JOIN k AS b ON b.id = a.g GROUP BY 1",
    "one after the other": "SELECT f FROM k UNION SELECT r FROM k",
}
SIGNS = (
    "UPDATE k SET f = 0, r = 0 WHERE f = 0",
    "UPDATE k SET f = '-0', r = '-0' WHERE f = 0; INSERT INTO k VALUES (7, 2, '-0', '-0')",
    "DELETE FROM k WHERE f = 0 AND id < 3; UPDATE k SET f = 3, r = 3 WHERE id = 7",
    "DELETE FROM k WHERE f = 0",
    "INSERT INTO k VALUES (8, 1, 0, 0)",
)


def test_a_group_shows_the_digits_of_its_key(ms: Millstream, database: str) -> None:
    """Equal numbers of different digits are one group, and PostgreSQL shows any; here all of a
    group show the same.
    """
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("CREATE TABLE k (id int PRIMARY KEY, g int, n numeric)")
        writer.execute(
            "INSERT INTO k VALUES (1, 1, 2.50), (2, 1, 2.50), (3, 2, 7), (4, 2, 1.500), (5, 1, 1e20)"
        )
        shows_the_same(ms, writer, KEYS, SHOWN)


def test_zeros_keep_their_sign(ms: Millstream, database: str) -> None:
    """Of floating point: 0 and -0 are equal, not the same, and one group."""
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("CREATE TABLE k (id int PRIMARY KEY, g int, f float8, r float4)")
        writer.execute(
            "INSERT INTO k VALUES (1, 1, '-0', '-0'), (2, 2, '-0', '-0'), (3, 2, 7, 7), (4, 2, NULL, NULL)"
        )
        shows_the_same(ms, writer, ZEROS, SIGNS)


def shows_the_same(
    ms: Millstream, writer: psycopg.Connection, queries: Mapping[str, str], changes: Sequence[str]
) -> None:
    """As a text, each row is PostgreSQL's, after each change."""
    for number, query in enumerate(queries.values()):
        ms.create_stream_table(f"st_{number}", query, schedule="1h", refresh_mode="DIFFERENTIAL")
    for change in ("", *changes):
        writer.execute(change.encode())
        assert {report.action for report in ms.refresh_all()} <= {"DIFFERENTIAL", "NO_DATA"}
        for number, query in enumerate(queries.values()):
            columns = ", ".join(
                column.name for column in writer.execute(query.encode()).description or ()
            )
            texts = [
                sorted(
                    writer.execute(
                        f"SELECT ROW({columns})::text FROM {rows} AS q".encode()
                    ).fetchall()
                )
                for rows in (f"({query})", f"st_{number}")
            ]
            assert texts[0] == texts[1], query
