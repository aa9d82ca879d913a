"""Read a large table in parallel: Spark's tasks, one snapshot, ranges of pages.

The cut exports its snapshot; each task opens its own connection, takes that snapshot and reads one
range of the table's pages straight into Arrow. Nothing passes through the driver. The transaction
that exported the snapshot must stay open until the scan has run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession

# Rows are read by leaf relation and page range.
PAGES_PER_TASK = 4096
# Where it gives no connection, the server tells words and no SQLSTATE; in another language than English it counts as
# a connection that was lost.
_FULL = ("too many clients", "connection slots are reserved", "too many connections")
_LOST = "08006"


def scan(spark: SparkSession, dsn: str, snapshot: str, queries: Sequence[str], schema: pa.Schema) -> Scanned:
    """A DataFrame over the rows of all queries, and a counter of the rows its tasks have read."""
    counter = spark.sparkContext.accumulator(0)
    parts = spark.createDataFrame(pa.table({"query": pa.array(list(queries), pa.string())}))
    names = schema.names

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Imported where it runs: on a cluster this is another machine.
        import adbc_driver_postgresql.dbapi as adbc

        for batch in batches:
            for query in batch.column(0).to_pylist():
                try:
                    with adbc.connect(dsn) as connection, connection.cursor() as cursor:
                        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                        cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
                        cursor.execute(query)
                        for found in cursor.fetch_record_batch():
                            counter.add(found.num_rows)
                            yield pa.RecordBatch.from_arrays(
                                [column.cast(field.type) for column, field in zip(found.columns, schema, strict=True)],
                                names=names,
                            )
                except adbc.Error as error:
                    # Only the text reaches the driver: `store/trouble.py` looks for the SQLSTATE in it.
                    code = error.sqlstate or ("53300" if any(one in str(error) for one in _FULL) else _LOST)
                    raise RuntimeError(f"[SQLSTATE {code}] " + " ".join(str(error).split())) from error

    spread = parts.repartition(max(1, min(len(queries), 64)))
    frame = spread.mapInArrow(read, _spark_schema(schema))
    return Scanned(frame, counter)


class Scanned:
    """A scan that Spark will run as part of a statement, and what it has read so far."""

    def __init__(self, frame: DataFrame, counter: Accumulator[int]) -> None:
        self.frame = frame
        self._counter = counter

    @property
    def rows(self) -> int:
        return int(self._counter.value)


_SPARK = {
    pa.bool_(): "boolean", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string",
}  # fmt: skip


def _spark_schema(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {_SPARK[field.type]}" for field in schema)
