"""Rows in the statement itself are the rows that were handed over, to the last bit."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millstream.spark import session
from millstream.spark.inline import CELLS, LETTERS, inline

pytestmark = pytest.mark.spark

ODD = pa.table(
    {
        "b": pa.array([True, False, None, True, None, False], pa.bool_()),
        "s": pa.array([-32768, 32767, None, 0, 1, -1], pa.int16()),
        "i": pa.array([-(1 << 31), (1 << 31) - 1, None, 0, 1, -1], pa.int32()),
        "l": pa.array([-(1 << 63), (1 << 63) - 1, None, 1 << 31, -(1 << 31), 0], pa.int64()),
        "f": pa.array([float("nan"), float("-inf"), None, -0.0, 0.1, 1e-45], pa.float32()),
        "d": pa.array(
            [float("nan"), float("inf"), None, -0.0, 5e-324, 1.7976931348623157e308], pa.float64()
        ),
        "t": [
            "it's \\' ${spark.master} -- /* \\u0041",
            "\n\t\r\x01",
            None,
            "",
            "ß 漢 \U0001f600 \u2028",
            '%_`"$1{}?:x',
        ],
    }
)


@pytest.fixture(scope="module")
def own(spark: SparkSession) -> SparkSession:
    return session.prepare(spark.newSession())


def bits(table: pa.Table) -> list[tuple[object, ...]]:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [
        tuple(struct.pack("d", value) if isinstance(value, float) else value for value in row)
        for row in rows
    ]


def test_every_value_is_what_it_was(own: SparkSession) -> None:
    read = own.sql(f"SELECT * FROM {inline(ODD)}").toArrow()
    assert read.schema.types == ODD.schema.types
    assert bits(read) == bits(ODD)


def test_columns_without_a_value_and_tables_without_a_row_have_their_types(
    own: SparkSession,
) -> None:
    for rows in (ODD.slice(2, 1), ODD.slice(0, 0)):
        read = own.sql(f"SELECT * FROM {inline(rows)}").toArrow()
        assert (read.schema.types, bits(read)) == (ODD.schema.types, bits(rows))


def test_what_is_long_is_handed_over() -> None:
    assert inline(pa.table({"n": pa.array(range(CELLS + 1), pa.int64())})) is None
    assert inline(pa.table({"t": ["x" * LETTERS]})) is None
    assert inline(pa.table({"x": pa.array([b"x"], pa.binary())})) is None
