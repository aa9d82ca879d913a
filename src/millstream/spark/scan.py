"""Read a large table in parallel: Spark's tasks read ranges of pages at one snapshot.

The cut exports its snapshot; each task opens its own connection, takes that snapshot and reads one
range of the table's pages straight into Arrow. Nothing passes through the driver. The transaction
that exported the snapshot must stay open until the scan has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

# Rows are read by leaf relation and page range, 32 MB at a time.
PAGES_PER_TASK = 4096
MOST_TASKS = 2000
# If the server refuses a connection, there is a message and no SQLSTATE. In a language other than
# English it counts as a lost connection.
_FULL = ("too many clients", "connection slots are reserved", "too many connections")
_LOST = "08006"


def scan(
    spark: SparkSession, dsn: str, snapshot: str, queries: Sequence[str], schema: pa.Schema
) -> Scanned:
    """Return a DataFrame over the rows of all queries, and a counter of the rows that its tasks
    have read.
    """
    counter = spark.sparkContext.accumulator(0)
    tasks = max(1, min(len(queries), MOST_TASKS))
    parts = _partitioned(spark, queries, tasks)
    names = schema.names
    take_snapshot = sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot).as_string()

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Imported in the task, which may run on another machine.
        import adbc_driver_postgresql.dbapi as adbc

        for batch in batches:
            for query in batch.column(0).to_pylist():
                try:
                    with adbc.connect(dsn) as connection, connection.cursor() as cursor:
                        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                        cursor.execute(take_snapshot)
                        cursor.execute(query)
                        for found in cursor.fetch_record_batch():
                            counter.add(found.num_rows)
                            yield pa.RecordBatch.from_arrays(
                                [
                                    column.cast(field.type)
                                    for column, field in zip(found.columns, schema, strict=True)
                                ],
                                names=names,
                            )
                except adbc.Error as error:
                    # Only the text reaches the driver: `postgres/failures.py` looks for the
                    # SQLSTATE in it.
                    code = error.sqlstate or (
                        "53300" if any(one in str(error) for one in _FULL) else _LOST
                    )
                    raise RuntimeError(
                        f"[SQLSTATE {code}] " + " ".join(str(error).split())
                    ) from error

    frame = parts.mapInArrow(read, spark_schema(schema))
    return Scanned(frame, tasks, lambda: int(counter.value))


def _partitioned(spark: SparkSession, queries: Sequence[str], tasks: int) -> DataFrame:
    """Return a DataFrame of the queries with this many partitions, whose size Spark does not know.

    If the queries had a known size, Spark would take it for the size of the rows that they return.
    A local table has a size from the start; the output of a shuffle (`repartition`) has one after
    adaptive execution has run it. With either, Spark would broadcast the largest table, that is,
    collect all of its rows into the driver's memory.
    """
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", str(tasks))
    # One batch for each query: Spark divides batches among the partitions, not rows.
    batches = [pa.record_batch({"query": pa.array([query], pa.string())}) for query in queries]
    return spark.createDataFrame(pa.Table.from_batches(batches))


@dataclass(frozen=True)
class Scanned:
    """Rows that Spark's tasks read as part of a statement."""

    frame: DataFrame
    tasks: int
    """Number of tasks that read them; each reads some 32 MB."""
    count: Callable[[], int]
    """Number of rows read so far."""

    def and_images(self, images: DataFrame) -> Scanned:
        """Return a scan of these rows and those of another one."""
        return replace(self, frame=self.frame.unionByName(images))


_SPARK = {
    pa.bool_(): "boolean", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string",
}  # fmt: skip


def spark_schema(schema: pa.Schema) -> str:
    """Return the schema of wire rows in Spark's DDL syntax."""
    return ", ".join(f"{field.name} {_SPARK[field.type]}" for field in schema)
