"""Messages of a batch in one array: numbers and stretches are found by their places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.wal.messages.protocol import HEADER, Delete, Insert, Parsed, Truncate
from millstream.capture.wal.messages.rows import Rows, big_endian, lay_out, take_ranges
from millstream.testing.pgoutput import encode, frame


def laid_out() -> Rows:
    """Three messages of two transactions: an insert, a truncation of two tables, a delete."""
    messages: list[Parsed] = [Insert(7, (b"a",)), Truncate((7, 70_000)), Delete(7, (b"a",), "O")]
    frames = [frame(encode(message)) for message in messages]
    at, transactions = np.full(3, HEADER + 1, np.int64), np.array([0, 1, 1], np.int64)
    return lay_out(frames, at, transactions, {}, [1000, 2**40])


def test_a_number_is_read_with_its_first_byte_first() -> None:
    data = np.frombuffer(b"\x00\x01\x02\x03\xff", np.uint8)
    assert big_endian(data, np.array([0, 1]), 4).tolist() == [0x010203, 0x010203FF]


@given(st.lists(st.binary(max_size=9)), st.integers(1, 400))
def test_stretches_are_taken_one_after_the_other_however_long_they_are(
    parts: list[bytes], times: int
) -> None:
    stretches = [part * times for part in parts]
    data = np.frombuffer(b"<" + b"<".join(stretches), np.uint8)
    lengths = np.array([len(stretch) for stretch in stretches], np.int64)
    starts = np.cumsum(lengths + 1) - lengths
    assert take_ranges(data, starts, lengths).tobytes() == b"".join(stretches)


def test_relations_and_truncations_are_returned_by_transaction() -> None:
    rows = laid_out()
    assert rows.truncated() == [(1, 7), (1, 70_000)]
    changes = rows.changes()
    assert bytes(changes.letters) == b"ID"
    assert changes.relids().tolist() == [7, 7]
    assert changes.changes() is changes


@pytest.mark.parametrize(("row", "begin"), [(0, b"\n1000\tI\tl"), (3, b"\n1099511627776\tD\tl")])
def test_what_begins_a_row_lies_behind_the_messages(row: int, begin: bytes) -> None:
    """By transaction and action: 1000 I, 1000 D, 2^40 I, 2^40 D."""
    rows = laid_out()
    trailer = rows.trailer
    assert bytes(rows.data[trailer.null : trailer.null + 3]) == b"\t\\N"
    start, length = trailer.starts[row], trailer.lengths[row]
    assert bytes(rows.data[start : start + length]) == begin
