"""Access paths: by lookup as far as the limit, and by a scan beyond it."""

from __future__ import annotations

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Settings

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("analyzed", [False, True])
def test_a_table_without_statistics_is_looked_up_as_far_as_the_limit(
    database: str, spark: SparkSession, analyzed: bool
) -> None:
    """Without statistics the server's estimate is a guess, and the table was scanned."""
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("CREATE TABLE a (id int PRIMARY KEY, b int); CREATE TABLE b (id int, x int)")
        writer.execute("ALTER TABLE b SET (autovacuum_enabled = false); CREATE INDEX ON b (id)")
        writer.execute("INSERT INTO b SELECT n, n FROM generate_series(1, 20000) AS n")
        if analyzed:
            # What the statistics say counts: one value, very often.
            writer.execute("UPDATE b SET id = 7; ANALYZE b; UPDATE b SET id = x WHERE id = 7")
        with millstream.connect(database, spark=spark, settings=Settings(max_lookup_rows=50)) as ms:
            ms.create_stream_table("st", "SELECT a.id, b.x FROM a JOIN b ON b.id = a.b")
            writer.execute("INSERT INTO a VALUES (1, 7), (2, 8)")
            report = ms.refresh("st")
            assert ms.verify("st").ok
    paths = {one.alias: (one.path, one.rows) for one in report.inputs if one.path != "changes"}
    assert paths == {"b": ("read", 20000) if analyzed else ("lookup", 2)}
