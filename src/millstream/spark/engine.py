"""Evaluate a statement on Spark over Arrow tables and scans.

    views in   Arrow tables (small; larger ones are sent in parts) or scans that Spark's tasks read themselves
    rows out   Arrow tables: one if the inputs are small, otherwise many (see `parts.py`)

Shuffle partitions, adaptive execution and code generation are chosen from the size of the input:
for a hundred rows, planning and compiling cost more than the work.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.errors import (
    Cancelled,
    Conflict,
    MillstreamError,
    QueryTooDeep,
    RefreshFailed,
    ValueOutOfRange,
)
from millstream.postgres.failures import NO_LOCK, failure_in_spark, sqlstate_in_text
from millstream.spark import parts
from millstream.spark.numbers import COMPARE, CREATE_COMPARE, NO_NUMBER
from millstream.spark.parts import Result, Stored
from millstream.spark.scan import Scanned, spark_schema
from millstream.spark.session import Running

# The rows of a view.
Rows: TypeAlias = "pa.Table | Scanned"

_SMALL = 100_000
_counter = itertools.count()
# Part of job names, because processes may share a Spark.
_PROCESS = f"millstream-{uuid4().hex[:12]}"
# The Spark applications that are warmed up.
_warm: set[str] = set()


class NoNumber(Exception):
    """Raised if a statement compares numbers that Spark cannot represent."""


@dataclass(frozen=True)
class Evaluated:
    """The result of a statement, and its cost."""

    rows: Result
    jobs: int


class Engine:
    """Runs statements in a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.java = Running(spark)
        self._stored = list[Stored]()
        self._compares = False

    def evaluate(self, statement: str, views: Mapping[str, Rows]) -> Evaluated:
        """Run a statement over named views, then delete what was stored for it.

        Raise `NoNumber` if it would have to compare numbers that Spark cannot represent.
        """
        size = _size(views)
        self._tune(views)
        group = f"{_PROCESS}-{next(_counter)}"
        context = self.spark.sparkContext
        context.setJobGroup(group, "refresh")
        try:
            self._add_functions(statement)
            for name, rows in views.items():
                self._frame(rows, one_partition=size <= _SMALL).createOrReplaceTempView(name)
            rows = self._computed(self.spark.sql(statement), large=size > _SMALL)
        except (PySparkException, Py4JJavaError) as error:
            if _is_interrupt(error):
                raise KeyboardInterrupt from error
            if NO_NUMBER in str(error):
                raise NoNumber from error
            if isinstance(error, PySparkException):
                raise _translated(error, self._directory()) from error
            if "java.lang.StackOverflowError" not in str(error):
                raise
            raise QueryTooDeep.evaluated() from error
        finally:
            for name in views:
                self.spark.catalog.dropTempView(name)
            self._release()
        return Evaluated(rows, len(context.statusTracker().getJobIdsForGroup(group)))

    def _add_functions(self, statement: str) -> None:
        """Create the function that a statement calls, once in a session: it takes Spark a second or
        two.
        """
        if COMPARE in statement and not self._compares:
            self.spark.sql(CREATE_COMPARE)
            self._compares = True

    def _computed(self, frame: DataFrame, *, large: bool) -> Result:
        if not large:
            try:
                return Result.of(frame.toArrow())
            except (PySparkException, Py4JJavaError) as error:
                # A few input rows can join to many.
                if "maxResultSize" not in str(error):
                    raise
        result = parts.compute(frame)
        return Result(result.schema, _translating(result.tables, self._directory()))

    def store(self, tables: Iterable[pa.Table], schema: pa.Schema) -> Scanned:
        """Send rows that are too many for the driver's memory; they exist for the next statement
        only.
        """
        stored = parts.store(self.spark, tables, spark_schema(schema))
        self._stored.append(stored)
        return Scanned(stored.frame, len(stored.parts), lambda: stored.rows)

    def _release(self) -> None:
        for stored in self._stored:
            stored.release()
        self._stored.clear()

    def warm(self) -> None:
        """Run a typical statement once on each Spark, so that the first refresh finds compiled
        code.
        """
        application = self.spark.sparkContext.applicationId
        if application in _warm:
            return
        _warm.add(application)
        table = pa.table({"k": pa.array([1, 2], pa.int64()), "v": ["1.5", "2"]})
        statement = (
            "SELECT k, CAST(SUM(CAST(v AS DECIMAL(12,2))) AS STRING) AS s "
            "FROM (SELECT a.k, b.v FROM {a} AS a JOIN {b} AS b ON a.k = b.k) GROUP BY k"
        )
        for _ in range(2):
            number = next(_counter)
            names = {"a": f"ms_warm_a_{number}", "b": f"ms_warm_b_{number}"}
            self.evaluate(statement.format(**names), dict.fromkeys(names.values(), table))

    def frame(self, rows: pa.Table) -> DataFrame:
        """Return a DataFrame of the rows; many rows are sent in parts."""
        if rows.nbytes <= parts.PART_BYTES:
            return self.spark.createDataFrame(rows)
        return self.store(parts.split(rows), rows.schema).frame

    def _frame(self, rows: Rows, *, one_partition: bool) -> DataFrame:
        if isinstance(rows, Scanned):
            return rows.frame
        frame = self.frame(rows)
        # Explicit: Spark does not know that a local table has one partition, and would exchange it.
        return frame.coalesce(1) if one_partition else frame

    def _directory(self) -> str:
        """Return the directory where Spark spills to disk."""
        given = self.spark.sparkContext.getConf().get("spark.local.dir")
        return os.environ.get("SPARK_LOCAL_DIRS") or given or tempfile.gettempdir()

    def _tune(self, views: Mapping[str, Rows]) -> None:
        tasks = sum(rows.tasks for rows in views.values() if isinstance(rows, Scanned))
        chosen = _FEW if few(views) else _many(self.spark.sparkContext.defaultParallelism, tasks)
        for name, value in chosen.items():
            self.spark.conf.set(name, value)


def few(views: Mapping[str, Rows]) -> bool:
    """Return True if the rows are few enough to be evaluated in one partition."""
    return _size(views) <= _SMALL


def _size(views: Mapping[str, Rows]) -> int:
    """Return the number of rows; a scan counts as many."""
    return sum(
        rows.num_rows if isinstance(rows, pa.Table) else _SMALL + 1 for rows in views.values()
    )


_LOCAL = "spark.sql.execution.arrow.localRelationThreshold"

# For few rows: one partition, so that little is exchanged; no second job for a broadcast; no
# compilation. A table above a megabyte is read by a task: otherwise the optimizer itself computes
# with its rows, which is slower.
_FEW: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    _LOCAL: "1MB",
}


def _many(parallel: int, tasks: int) -> Mapping[str, str]:
    """Return the settings for many rows: Spark's defaults, with adaptive execution to coalesce
    small partitions.

    As many partitions as tasks read the rows, each of some 32 MB: one may have to be sorted in
    little memory. Its tasks read what we send: as rows of the driver, the optimizer itself would
    compute with them, one by one.
    """
    return {
        "spark.sql.shuffle.partitions": str(max(2, parallel * 2, min(tasks, 1000))),
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16MB",
        "spark.sql.leafNodeDefaultParallelism": str(parallel),
        "spark.sql.autoBroadcastJoinThreshold": str(10 * 1024 * 1024),
        "spark.sql.join.preferSortMergeJoin": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        _LOCAL: "0",
    }


def _translating(tables: Iterable[pa.Table], directory: str) -> Iterator[pa.Table]:
    try:
        yield from tables
    except PySparkException as error:
        raise _translated(error, directory) from error


def view_name(kind: str) -> str:
    """Return a name that no other evaluation uses."""
    return f"ms_{kind}_{next(_counter)}"


def _is_interrupt(error: BaseException) -> bool:
    """Return True if Ctrl-C is the cause: Spark's own handler cancels the job, which then ends with
    an error.
    """
    seen, chain = set[int](), [error]
    while chain:
        one = chain.pop()
        if isinstance(one, KeyboardInterrupt):
            return True
        seen.add(id(one))
        chain += [
            other
            for other in (one.__cause__, one.__context__)
            if other is not None and id(other) not in seen
        ]
    return False


def _translated(error: PySparkException, directory: str) -> MillstreamError:
    """Convert an error of Spark to a MillstreamError; name a number that does not fit."""
    condition = error.getCondition() or ""
    text = str(error)
    if "SPARK_JOB_CANCELLED" in text:
        return Cancelled.by("", text.split("\n")[0])
    if (sqlstate_in_text(text) or ("",))[0] == NO_LOCK:
        return Conflict.on(
            "", "A table that was to be scanned is about to be truncated or altered."
        )
    if condition == "FAILED_TO_PARSE_TOO_COMPLEX" or "java.lang.StackOverflowError" in text:
        return QueryTooDeep.evaluated()
    if (
        condition in ("CAST_INVALID_INPUT", "NUMERIC_VALUE_OUT_OF_RANGE")
        or "NUMERIC_VALUE_OUT_OF_RANGE" in text
    ):
        found = re.search(r"The value '?(.*?)'? (?:of the type|cannot be)", text)
        return ValueOutOfRange.in_column(
            "a column Spark computes with", found[1] if found else text.split("\n")[0]
        )
    return failure_in_spark("", text, directory) or RefreshFailed.because(
        "", text.split("\n\nJVM stacktrace")[0][:2000]
    )
