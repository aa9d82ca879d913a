"""The engine: what few rows cost, and that it makes no difference to what comes out."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millstream.spark import engine
from millstream.spark.engine import Engine, view_name

pytestmark = pytest.mark.spark

STATEMENT = (
    "SELECT a.k, CAST(SUM(CAST(b.v AS DECIMAL(38,20))) AS STRING) AS s, MAX(b.f) AS f, COUNT(*) AS n "
    "FROM {a} AS a JOIN {b} AS b ON a.k IS NOT DISTINCT FROM b.k GROUP BY a.k ORDER BY a.k"
)
ROWS = pa.table(
    {
        "k": pa.array([1, 2, None, 2], pa.int64()),
        "v": ["1.5", "99999999999999999.99999999999999999999", None, "-2"],
        "f": pa.array([float("nan"), -0.0, None, 0.1]),
    }
)


@pytest.fixture
def own(spark: SparkSession) -> Engine:
    return Engine(spark.newSession())


def evaluated(own: Engine) -> pa.Table:
    names = {one: view_name(one) for one in "ab"}
    return own.evaluate(STATEMENT.format(**names), dict.fromkeys(names.values(), ROWS)).rows.table()


def test_few_rows_are_joined_and_grouped_in_one_stage(own: Engine) -> None:
    evaluated(own)
    context = own.spark.sparkContext
    tracker = context.statusTracker()
    group = context.getLocalProperty("spark.jobGroup.id")
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    assert [len(job.stageIds) for job in jobs if job] == [1]


def test_few_rows_and_many_are_computed_alike(own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    few = evaluated(own)
    assert few.num_rows == 3
    monkeypatch.setattr(engine, "_SMALL", 0)
    # As text, where NaN is NaN.
    assert str(evaluated(own).to_pylist()) == str(few.to_pylist())


def test_a_spark_is_warmed_once(own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    own.warm()
    monkeypatch.setattr(own, "evaluate", lambda *_: pytest.fail("warmed again"))
    own.warm()
    Engine(own.spark.newSession()).warm()
