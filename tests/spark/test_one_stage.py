"""A refresh of few rows is one stage on Spark, whatever the query joins and unites: each further
one costs time.
"""

from __future__ import annotations

import psycopg
import pytest

from millstream import Millstream
from millstream.spark.engine import Engine, Evaluated

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, a int, b int);
    CREATE TABLE u (id int PRIMARY KEY, a int, b int);
    CREATE TABLE w (id int PRIMARY KEY, a int, b int);
    INSERT INTO t SELECT n, n % 5, n % 3 FROM generate_series(1, 20) AS n;
    INSERT INTO u SELECT n, n % 5, n % 3 FROM generate_series(1, 20) AS n;
    INSERT INTO w SELECT n, n % 5, n % 3 FROM generate_series(1, 20) AS n;
"""
CHANGE = "UPDATE t SET a = a + 1 WHERE id < 4; DELETE FROM u WHERE id = 5; INSERT INTO w VALUES (99, 2, 2)"
QUERIES = {
    "joins": "SELECT t.id, u.b, w.id AS other FROM t JOIN u ON u.id = t.id JOIN w ON w.id = u.b",
    "optional": "SELECT t.id, u.b, w.id AS other FROM t LEFT JOIN (u JOIN w ON w.id = u.b) ON u.id = t.a",
    "both_ways": "SELECT t.a, u.b, count(*) AS n FROM t FULL JOIN u ON u.a = t.a GROUP BY t.a, u.b",
    "united": "SELECT t.a, count(*) AS n FROM (SELECT a FROM t UNION ALL SELECT b FROM u) AS t JOIN w ON w.id = t.a "
    "GROUP BY t.a",
    "each_once": "SELECT t.a FROM t JOIN u ON u.id = t.id UNION SELECT w.b FROM w JOIN t ON t.id = w.id",
    "asked": "SELECT id FROM t WHERE NOT EXISTS (SELECT FROM u JOIN w ON w.id = u.b WHERE u.a = t.a AND w.b > t.b)",
}


def test_it_is_one_stage(ms: Millstream, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = list[int]()
    evaluate = Engine.evaluate

    def counted(engine: Engine, *given: object) -> Evaluated:
        done = evaluate(engine, *given)  # type: ignore[arg-type]  # passed on
        context = engine.spark.sparkContext
        tracker = context.statusTracker()
        jobs = tracker.getJobIdsForGroup(context.getLocalProperty("spark.jobGroup.id"))
        stages.extend(len(job.stageIds) for job in map(tracker.getJobInfo, jobs) if job)
        return done

    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
        for name, query in QUERIES.items():
            ms.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
        conn.execute(CHANGE)
    monkeypatch.setattr(Engine, "evaluate", counted)
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    assert set(stages) == {1}
    assert [name for name in QUERIES if not ms.verify(name).ok] == []
