"""The rows of an input: what messages start from, and which keys need no second lookup."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from millstream.refresh.reads.input_rows import InputRows, LookedUpKeys, is_in
from millstream.refresh.reads.read_sql import ROW
from millstream.spark.scan import Scanned

SCANNED = Scanned(cast(DataFrame, None), 1, lambda: 0)


def ints(*values: int | None, type_: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type_ or pa.int32())])


def rows(*keys: int | None, located: bool = False) -> pa.Table:
    table = pa.table({"c": ints(*keys)})
    return (
        table.append_column(ROW, pa.array([str(key) for key in keys], pa.string()))
        if located
        else table
    )


def test_messages_start_from_images_and_from_rows_that_cross_a_filter() -> None:
    images, crossing = rows(1), rows(2, located=True)
    held = InputRows.starting_with(images, crossing)
    assert held.starting_rows() == [images, crossing]
    assert held.found == [crossing]
    assert held.whole is None


def test_crossing_rows_that_cannot_be_identified_are_the_whole_input() -> None:
    assert InputRows.starting_with(None, SCANNED).whole is SCANNED
    assert InputRows.starting_with(None, rows(2)).whole == rows(2)


def test_an_empty_table_starts_no_message_and_a_scan_does() -> None:
    assert InputRows.starting_with(rows(), None).starting_rows() == []
    assert not InputRows(first=rows(), found=[rows()]).has_rows()
    assert InputRows.starting_with(rows(), SCANNED).starting_rows() == [SCANNED]
    assert InputRows(whole=SCANNED).has_rows()


def test_keys_that_were_looked_up_are_answered_from_the_rows_found() -> None:
    held = InputRows(lookups=[LookedUpKeys("c", ints(1, 2, 3), rows(1, 1, 3))])
    known, unknown = held.split_known("c", pa.table({"key": ints(1, 2, 4)}))
    assert [table["c"].to_pylist() for table in known] == [[1, 1]]
    assert unknown["key"].to_pylist() == [4]


def test_keys_that_were_looked_up_by_another_column_are_not_known() -> None:
    held = InputRows(lookups=[LookedUpKeys("d", ints(1), rows(1))])
    assert held.split_known("c", pa.table({"key": ints(1)})) == ([], pa.table({"key": ints(1)}))


def test_rows_that_spark_reads_are_not_at_hand() -> None:
    assert InputRows(first=rows(1), found=[rows(2)]).tables() == [rows(1), rows(2)]
    assert InputRows(first=rows(1), whole=SCANNED).tables() is None


def test_a_reduction_reaches_every_table_and_no_scan() -> None:
    reduced = InputRows(rows(1, 2), [rows(3, 4)], SCANNED).reduce(lambda table: table.slice(0, 1))
    assert reduced.first == rows(1)
    assert reduced.found == [rows(3)]
    assert reduced.whole is SCANNED


def test_first_rows_taken_for_stored_ones_are_found_rows_if_they_can_be_identified() -> None:
    first, found = rows(1, located=True), rows(2, located=True)
    assert InputRows(first, [found]).as_stored() == InputRows(found=[first, found])
    assert InputRows(rows(1)).as_stored() == InputRows(whole=rows(1))
    assert InputRows(first, [], SCANNED).as_stored() == InputRows(whole=SCANNED)


@pytest.mark.parametrize(
    ("nulls", "expected"), [(False, [True, False, False]), (True, [True, False, True])]
)
def test_a_null_is_among_nulls_only_if_nulls_are_equal(nulls: bool, expected: list[bool]) -> None:
    assert is_in(ints(1, 2, None), ints(1, None), nulls=nulls).to_pylist() == expected


def test_integers_of_two_widths_are_compared_by_value() -> None:
    assert is_in(ints(1, 2), ints(2, 2**40, type_=pa.int64()), nulls=False).to_pylist() == [
        False,
        True,
    ]
