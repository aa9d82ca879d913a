"""Scans by Spark's tasks: what Spark is told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millstream.spark import parts
from millstream.spark.engine import Engine, view_name
from millstream.spark.scan import Scanned, scan

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("i", pa.int64()), ("s", pa.string())])
# Rows of 1 kB each: 20 MB, and Spark broadcasts up to 10 MB.
ROWS, WIDTH, QUERIES = 20_000, 1_000, 4


@pytest.mark.parametrize("threshold", ["0", "48MB"])
def test_a_scan_is_not_taken_for_small_whatever_was_run_before(
    spark: SparkSession, threshold: str
) -> None:
    """Taken for as small as the text of its queries, one side of a join of millions of rows was
    broadcast, and Java ended for want of memory.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", threshold)
    found = scan(session, "dbname=nowhere", "0-0-1", ["SELECT 1"], pa.schema([("i", pa.int64())]))
    size = found.frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert size > 1 << 40


def test_many_rows_are_not_broadcast_once_spark_has_run_some_of_the_plan(
    spark: SparkSession, database: str
) -> None:
    """The queries of a scan were dealt to its tasks by a shuffle. Adaptive execution took the bytes
    shuffled for the size of the rows that the queries return, and broadcast a large table: TPC-H 3
    at scale 3 ended a driver of 1 GB.
    """
    own = Engine(spark.newSession())
    with snapshot(database) as exported:
        kinds: dict[str, Callable[[], Scanned]] = {
            "scan": lambda: scanned(own, database, exported),
            "scan and images": lambda: scanned(own, database, exported).and_images(
                own.spark.createDataFrame(rows(1))
            ),
            "stored": lambda: own.store(parts.split(rows(ROWS)), SCHEMA),
        }
        for name, other in kinds.items():
            views = {view_name("a"): scanned(own, database, exported), view_name("b"): other()}
            plan = executed(
                own, "SELECT count(a.s), count(b.s) FROM {} AS a JOIN {} AS b ON a.i = b.i", views
            )
            assert "isFinalPlan=true" in plan, name
            assert "SortMergeJoin" in plan, name
            assert "Broadcast" not in plan, name


def test_a_scan_is_read_by_as_many_tasks_as_it_has_queries_and_every_row_once(
    spark: SparkSession, database: str
) -> None:
    own = Engine(spark.newSession())
    with snapshot(database) as exported:
        found = scanned(own, database, exported)
        assert (found.tasks, found.frame.rdd.getNumPartitions()) == (QUERIES, QUERIES)
        assert sorted(row.i for row in found.frame.select("i").collect()) == list(range(ROWS))


@contextmanager
def snapshot(dsn: str) -> Iterator[str]:
    with psycopg.connect(dsn) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield conn.execute("SELECT pg_export_snapshot()").fetchall()[0][0]


def scanned(own: Engine, dsn: str, exported: str) -> Scanned:
    each = ROWS // QUERIES
    query = "SELECT n::int8 AS i, repeat('x', {}) AS s FROM generate_series({}, {}) AS n"
    queries = [query.format(WIDTH, start, start + each - 1) for start in range(0, ROWS, each)]
    return scan(own.spark, dsn, exported, queries, SCHEMA)


def rows(count: int) -> pa.Table:
    return pa.table({"i": range(count), "s": ["x" * WIDTH] * count}, schema=SCHEMA)


def executed(own: Engine, statement: str, views: dict[str, Scanned]) -> str:
    """The plan that the statement was run by in the end."""
    own._tune(views)
    for name, found in views.items():
        found.frame.createOrReplaceTempView(name)
    frame = own.spark.sql(statement.format(*views))
    assert frame.collect()[0][0] >= ROWS
    own._release()
    return str(frame._jdf.queryExecution().executedPlan().toString())
