"""Functions in FROM."""

from __future__ import annotations

import psycopg
import pytest

from millstream import Millstream
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle

TABLES = """
    CREATE SCHEMA app;
    CREATE FUNCTION app.upto(int) RETURNS SETOF int LANGUAGE sql IMMUTABLE AS 'SELECT generate_series(1, $1)';
    CREATE FUNCTION app.generate_series(int) RETURNS SETOF int LANGUAGE sql IMMUTABLE AS 'SELECT -$1';
    CREATE FUNCTION app.parts(int) RETURNS TABLE (x int, y text) LANGUAGE sql IMMUTABLE
        AS 'SELECT $1 + n, ''p'' || n::text FROM pg_catalog.generate_series(1, 2) AS n';
    CREATE TABLE t (id int PRIMARY KEY, n int);
    INSERT INTO t SELECT i, i % 4 FROM generate_series(1, 12) AS i;
"""
CHANGE = "INSERT INTO t VALUES (20, 3), (21, NULL); UPDATE t SET n = n + 1 WHERE id < 4; DELETE FROM t WHERE id = 5"
QUERIES = {
    "for_each_row": "SELECT t.id, u.k FROM t CROSS JOIN LATERAL app.upto(t.n) AS u (k)",
    "optional": "SELECT t.id, u.k FROM t LEFT JOIN LATERAL app.upto(t.n) AS u (k) ON true",
    "columns": "SELECT t.id, p.x, p.y FROM t CROSS JOIN LATERAL app.parts(t.n) AS p",
    "constant": "SELECT t.id, p.x FROM t JOIN app.parts(1) AS p ON p.x = t.n",
    "first": "SELECT t.id, p.y FROM app.parts(1) AS p JOIN t ON p.x = t.n",
    "together": "SELECT t.id, r.a, r.b, r.n FROM t CROSS JOIN LATERAL "
    "ROWS FROM (app.upto(t.n), app.upto(2)) WITH ORDINALITY AS r (a, b, n)",
    "namesake": "SELECT t.id, g.g FROM t CROSS JOIN LATERAL app.generate_series(t.n) AS g",
}


@pytest.mark.spark
def test_a_function_of_a_schema_is_called_with_its_schema(ms: Millstream, database: str) -> None:
    """The schema of a function in FROM was lost without LATERAL, and an internal error with it."""

    def compare(now: Cut, job: Job, report: RefreshReport) -> None:
        oracle.check(now.conn, job.table.query, job.table.name)

    ms.app.witness = compare
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
        for name, query in QUERIES.items():
            ms.create_stream_table(name, query)
        conn.execute(CHANGE)
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
