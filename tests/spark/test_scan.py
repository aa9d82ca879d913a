"""Scans by Spark's tasks: what Spark is told of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millstream.spark.scan import scan

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("threshold", ["0", "48MB"])
def test_a_scan_is_not_taken_for_small_whatever_was_run_before(spark: SparkSession, threshold: str) -> None:
    """Taken for as small as the text of its queries, one side of a join of millions of rows was broadcast, and Java
    ended for want of memory."""
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", threshold)
    found = scan(session, "dbname=nowhere", "0-0-1", ["SELECT 1"], pa.schema([("i", pa.int64())]))
    size = found.frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert size > 1 << 40
