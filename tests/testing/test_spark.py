"""Processes that share one Spark have sessions of their own in it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from millstream.testing import spark as shared_spark

ATTACHED = """
import sys
from millstream.spark import session
from millstream.testing.spark import attached

own = attached(sys.argv[1])
started = session.start("local[1]", {})
started.sql("SELECT 1 AS n").createOrReplaceTempView(sys.argv[2])
print(started is own, started.sparkContext.applicationId, [table.name for table in started.catalog.listTables()])
"""


@pytest.mark.spark
def test_the_session_that_an_attached_process_starts_shares_no_view_with_others(
    spark: SparkSession,
) -> None:
    parameters = shared_spark._gateway(spark).java_parameters
    address = f"{parameters.port}/{parameters.auth_token}"
    views = []
    for name in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-c", ATTACHED, address, name],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        views.append(done.stdout.strip())
    application = spark.sparkContext.applicationId
    assert views == [f"True {application} ['first']", f"True {application} ['second']"]
    assert not {"first", "second"} & {table.name for table in spark.catalog.listTables()}
