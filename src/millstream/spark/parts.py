"""Move many rows into and out of Spark in parts, so that its driver's memory never holds all of
them.

    in    each part is packed, sent, and written to the disks of Spark's executors before the next one is sent
    out   the tasks that compute the rows pack them and write them to disk; they are fetched part by part

A packed row is one Arrow message of some thousand rows: Spark stores, moves and counts few large
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

# The size of a part. Smaller tables are sent, and smaller results fetched, in one piece.
PART_BYTES = 32 << 20

_MESSAGE_ROWS = 10_000
_PACKED = "rows binary"


# -- into Spark ------------------------------------------------------------------------------


def split(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the table in parts of about PART_BYTES."""
    rows = max(1, table.num_rows * PART_BYTES // max(1, table.nbytes))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


@dataclass(frozen=True)
class Stored:
    """Rows on the disks of Spark's executors, until they are released."""

    frame: DataFrame
    parts: tuple[DataFrame, ...]
    rows: int

    def release(self) -> None:
        """Delete them."""
        for part in self.parts:
            _delete(part)


def store(spark: SparkSession, tables: Iterable[pa.Table], schema: str) -> Stored:
    """Send tables of this (Spark) schema, one after the other."""
    # A local table of messages has few values, so Spark assumes that it is small, and would
    # broadcast all rows in them.
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")
    parts, rows = list[DataFrame](), 0
    for table in tables:
        messages = [
            _packed(batch)
            for batch in table.combine_chunks().to_batches(max_chunksize=_MESSAGE_ROWS)
        ]
        sent = spark.createDataFrame(pa.table({"rows": pa.array(messages, pa.binary())}))
        parts.append(_on_disk(sent))
        rows += table.num_rows
    all_parts = parts[0]
    for part in parts[1:]:
        all_parts = all_parts.union(part)
    return Stored(all_parts.mapInArrow(_unpack, schema), tuple(parts), rows)


def _unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for message in batch.column(0):
            with pa.ipc.open_stream(message.as_buffer()) as stream:
                yield from stream


# -- out of Spark ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """The result of a statement as a sequence of tables, which can be read once."""

    schema: pa.Schema
    tables: Iterable[pa.Table]

    @classmethod
    def of(cls, table: pa.Table) -> Result:
        """Return a result that is already in memory."""
        return cls(table.schema, [table])

    def table(self) -> pa.Table:
        """Return all rows as one table."""
        return pa.concat_tables([self.schema.empty_table(), *self.tables])


def compute(frame: DataFrame) -> Result:
    """Compute the rows now and write them to disk, to be fetched later."""
    size = frame.sparkSession.sparkContext.accumulator(0)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            message = _packed(batch)
            size.add(len(message))
            yield pa.RecordBatch.from_arrays([pa.array([message], pa.binary())], names=["rows"])

    schema = to_arrow_schema(frame.schema)
    packed = _on_disk(frame.mapInArrow(pack, _PACKED))
    return Result(schema, _fetched(packed, schema, 1 + size.value // PART_BYTES))


def _fetched(packed: DataFrame, schema: pa.Schema, times: int) -> Iterator[pa.Table]:
    """Yield the rows, fetched in this many steps."""
    try:
        # A partition is fetched as a whole, and one may have most of the rows.
        for row in packed.repartition(times).toLocalIterator() if times > 1 else packed.collect():
            with pa.ipc.open_stream(row[0]) as stream:
                yield stream.read_all().cast(schema)
    finally:
        _delete(packed)


# -- both ------------------------------------------------------------------------------------


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _on_disk(frame: DataFrame) -> DataFrame:
    """Compute the rows now, write them to disk, and release their inputs."""
    stored = frame.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
    try:
        _written(stored).count()
    except BaseException:
        _delete(stored)
        raise
    return stored


def _delete(stored: DataFrame) -> None:
    """Delete the blocks that `_on_disk` wrote.

    If that fails, Spark deletes it when nothing refers to it any more.
    """
    with suppress(Exception):
        _written(stored).unpersist(False)


# Any: an object of Java.
def _written(stored: DataFrame) -> Any:
    return stored._jdf.queryExecution().analyzed().rdd()
