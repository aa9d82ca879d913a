"""The verb create_or_replace: one call, whatever is there."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream import Millstream
from millstream.testing import oracle

pytestmark = pytest.mark.spark


TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, g int, v int, w text);
    CREATE TABLE u (g int PRIMARY KEY, name text);
    INSERT INTO t SELECT i, i % 3, i, 'w' || i % 2 FROM generate_series(1, 9) AS i;
    INSERT INTO u VALUES (0, 'zero'), (1, 'one')
"""


# Each from the one before: another filter, columns, types, keys, sources; and back.
QUERIES = [
    "SELECT g, sum(v) AS total, count(*) AS n FROM t WHERE v > 2 GROUP BY g",
    "SELECT g, sum(v)::text AS total FROM t GROUP BY g",
    'SELECT w, g, max(v) AS "Max", min(v) AS total FROM t GROUP BY w, g',
    "SELECT w FROM t",
    "SELECT t.id, u.name FROM t LEFT JOIN u ON u.g = t.g",
    "SELECT count(*) AS id FROM u",
    "SELECT g, n FROM (SELECT g, count(*) AS n, max(v) AS m FROM t GROUP BY g) AS q WHERE m > 4",
    "SELECT g, sum(v) AS total, count(*) AS n FROM t GROUP BY g",
]


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
        yield conn


def test_create_or_replace_creates_alters_or_does_nothing(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    done = list[str]()
    for query, schedule in (
        (QUERIES[0], "1m"),
        (QUERIES[0], "5m"),
        (QUERIES[2], "5m"),
        (QUERIES[2], "5m"),
    ):
        report = ms.create_or_replace_stream_table("st", query, schedule=schedule)
        done.append(report.reason if report else "nothing")
        assert ms.app.named("st").schedule == schedule
        oracle.check(ms.app.conn, query, "st")
    assert done == ["INITIAL", "nothing", "QUERY_CHANGED", "nothing"]
