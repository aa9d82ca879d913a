"""A stream table as a Spark DataFrame: numbers and times in Spark's own types, the rest as text."""

from __future__ import annotations

import datetime
from decimal import Decimal

import psycopg
import pytest

from millstream import Millstream
from millstream.algebra.wire import number_wire_of
from millstream.service.to_dataframe import _spark_type
from millstream.testing.planning_server import pg_type


@pytest.mark.parametrize(
    ("type_", "spark"),
    [
        ("date", "date"),
        ("timestamp", "timestamp_ntz"),
        ("timestamptz", "timestamp"),
        ("numeric(12,2)", "decimal(12,2)"),
        ("int4", None),
        ("text", None),
        ("jsonb", None),
    ],
)
def test_only_times_and_decimals_are_cast(type_: str, spark: str | None) -> None:
    """An integer travels as one already, and what Spark has no type for stays text."""
    found = pg_type(type_)
    assert _spark_type(found.base, number_wire_of(found)) == spark


@pytest.mark.spark
def test_rows_are_as_they_stand_under_the_names_of_the_query(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(
        'CREATE TABLE t (id int PRIMARY KEY, n numeric(9,2), d date, j jsonb, "odd `name" text)'
    )
    writer.execute(
        "INSERT INTO t VALUES (1, 2.50, '2024-06-01', '{}', 'x'), (2, NULL, NULL, NULL, NULL)"
    )
    ms.create_stream_table("st", "SELECT * FROM t")
    frame = ms.table("st")
    assert frame.columns == ["id", "n", "d", "j", "odd `name"]
    rows = sorted(map(tuple, frame.collect()))
    assert rows == [
        (1, Decimal("2.50"), datetime.date(2024, 6, 1), "{}", "x"),
        (2, None, None, None, None),
    ]
