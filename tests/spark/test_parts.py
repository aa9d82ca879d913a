"""Rows that move into and out of Spark in parts: none is lost or changed, and nothing stays behind.

Creating a stream table of a million groups ended Spark's driver for want of memory: all of a
result, and all of what an inner block of the query had stored, passed through it in one piece.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millstream.errors import ValueOutOfRange
from millstream.spark import engine, parts
from millstream.spark.engine import Engine, view_name
from millstream.spark.scan import Scanned

pytestmark = pytest.mark.spark

NUMBER = 3_000
SCHEMA = pa.schema(
    [
        ("i", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("b", pa.bool_()),
        ("__before", pa.int32()), ("__after", pa.int16()),
    ]
)  # fmt: skip
ROWS = pa.table(
    {
        "i": [n if n % 7 else None for n in range(NUMBER)],
        "s": [None if n % 5 == 0 else "" if n % 5 == 1 else f"süd €\n{n}" for n in range(NUMBER)],
        "f": [
            float("nan") if n % 11 == 0 else -0.0 if n % 11 == 1 else n / 3 for n in range(NUMBER)
        ],
        "b": [None, True, False] * (NUMBER // 3),
        "__before": range(NUMBER),
        "__after": [n % 100 for n in range(NUMBER)],
    },
    schema=SCHEMA,
)


@pytest.fixture
def own(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine for which some kilobytes are many; nothing is left on disk by it."""
    monkeypatch.setattr(parts, "PART_BYTES", 10_000)
    monkeypatch.setattr(engine, "_SMALL", 100)
    before = stored(spark)
    yield Engine(spark.newSession())
    # Other processes of the suite share this Spark, and delete what is theirs.
    left, deadline = stored(spark) - before, time.monotonic() + 60
    while left & stored(spark) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left & stored(spark)


def stored(spark: SparkSession) -> set[int]:
    """The numbers of what lies on Spark's disks."""
    jsc = spark.sparkContext._jsc
    assert jsc is not None
    return set(jsc.getPersistentRDDs())


def evaluated(
    own: Engine, rows: pa.Table | Scanned, statement: str = "SELECT * FROM {t}"
) -> pa.Table:
    name = view_name("t")
    return own.evaluate(statement.format(t=name), {name: rows}).rows.table()


def as_text(rows: pa.Table) -> list[str]:
    """As a bag, and NaN is NaN."""
    return sorted(str(row) for row in rows.to_pylist())


def test_a_table_that_is_split_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 10_000)
    pieces = list(parts.split(ROWS))
    assert len(pieces) > 10
    assert all(piece.nbytes < 20_000 for piece in pieces)
    assert as_text(pa.concat_tables(pieces)) == as_text(ROWS)


def test_rows_sent_in_parts_and_fetched_in_parts_are_the_same_rows(own: Engine) -> None:
    found = evaluated(own, ROWS)
    assert as_text(found) == as_text(ROWS)
    assert found.schema.types == SCHEMA.types


def test_stored_rows_are_read_like_a_scan_and_counted(own: Engine) -> None:
    scanned = own.store(parts.split(ROWS), SCHEMA)
    assert (scanned.count(), scanned.tasks > 10) == (NUMBER, True)
    more = scanned.and_images(own.frame(ROWS))
    (row,) = evaluated(
        own, more, "SELECT count(*) AS n, sum(i) AS i, count(s) AS s FROM {t}"
    ).to_pylist()
    numbers = [n for n in range(NUMBER) if n % 7]
    assert row == {"n": 2 * NUMBER, "i": 2 * sum(numbers), "s": 2 * (NUMBER - NUMBER // 5)}


def test_a_result_without_rows_has_its_columns(own: Engine) -> None:
    found = evaluated(own, ROWS, "SELECT i, s FROM {t} WHERE __before < 0")
    assert (found.num_rows, found.schema.types) == (0, [pa.int64(), pa.string()])


def test_an_error_in_a_task_is_a_millstream_error_and_leaves_nothing_behind(own: Engine) -> None:
    with pytest.raises(ValueOutOfRange):
        evaluated(own, ROWS, "SELECT CAST(s || 'x' AS INT) AS n FROM {t}")


def test_a_result_larger_than_the_driver_takes_is_fetched_in_parts_though_its_inputs_are_few(
    own: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row meets every other."""
    monkeypatch.setattr(engine, "_SMALL", 100_000)
    monkeypatch.setattr(parts, "PART_BYTES", 100_000)
    jsc = own.spark.sparkContext._jsc
    assert jsc is not None
    conf, former = jsc.sc().conf(), jsc.sc().conf().get("spark.driver.maxResultSize", "1g")
    conf.set("spark.driver.maxResultSize", "8m")
    try:
        found = evaluated(
            own, ROWS.slice(0, 800), "SELECT a.*, b.s AS other FROM {t} AS a CROSS JOIN {t} AS b"
        )
    finally:
        conf.set("spark.driver.maxResultSize", former)
    assert found.num_rows == 800 * 800
