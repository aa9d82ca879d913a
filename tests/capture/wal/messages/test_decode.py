"""Rows by the thousand are read as one by one, and become the text that COPY reads back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.capture.wal.messages.copy_text import copy_text
from millstream.capture.wal.messages.decode import decode
from millstream.capture.wal.messages.protocol import (
    HEADER,
    UNCHANGED,
    Cells,
    Delete,
    Insert,
    Parsed,
    RelationColumn,
    RelationMessage,
    Truncate,
    Update,
)
from millstream.capture.wal.messages.rows import Rows, lay_out
from millstream.catalog.sources import CapturedColumn, Source
from millstream.errors import WalNotUnderstood
from millstream.testing.pgoutput import encode, frame

NAMES = ("a", "b", "c")
LAYOUT = RelationMessage(
    7, "public", "t", "f", tuple(RelationColumn(name, 25, -1, True) for name in NAMES)
)
SOURCE = Source(
    7,
    "public",
    "t",
    "WAL",
    (CapturedColumn(1, "a", 25, "text"), CapturedColumn(3, "c", 25, "text")),
)
XIDS = (1000, 1001, 2**40)


def laid_out(
    messages: Sequence[tuple[int, Parsed]],
    layout: RelationMessage = LAYOUT,
    *,
    in_chunk: bool = False,
) -> Rows:
    frames = [frame(encode(message, 5 if in_chunk else None)) for _, message in messages]
    at = np.full(len(frames), HEADER + (5 if in_chunk else 1), np.int64)
    numbers = np.array([number for number, _ in messages], np.int64)
    return lay_out(frames, at, numbers, {7: layout}, XIDS)


def lines(rows: Rows, source: Source = SOURCE) -> list[bytes]:
    """The lines of all images, in any order."""
    found = decode(rows, source)
    text = b"".join(copy_text(images) for images in found.images if len(images.starts))
    # Line feeds inside values are escaped.
    return sorted(text.splitlines(keepends=True))


_ESCAPES = {
    b"\b": b"\\b",
    b"\t": b"\\t",
    b"\n": b"\\n",
    b"\v": b"\\v",
    b"\f": b"\\f",
    b"\r": b"\\r",
    b"\\": b"\\\\",
}


def line(number: int, action: bytes, cells: Cells) -> bytes:
    """What the documentation of COPY says."""
    values = []
    for cell in cells:
        if cell is None:
            values.append(b"\\N")
        elif isinstance(cell, bytes):
            values.append(b"".join(_ESCAPES.get(bytes([byte]), bytes([byte])) for byte in cell))
    return b"\t".join([str(XIDS[number]).encode(), action, b"l", *values]) + b"\n"


VALUES = (
    st.none()
    | st.binary(max_size=12)
    | st.sampled_from([b"\\", b"\t", b"\\N", b"x\ny", b"x" * 300, b""])
)
CELLS = st.tuples(VALUES, VALUES, VALUES)


@st.composite
def changes(draw: st.DrawFn) -> tuple[int, Parsed]:
    number, old, new = draw(st.sampled_from([0, 1, 2])), draw(CELLS), draw(CELLS)
    kind = draw(st.sampled_from("IUD"))
    if kind == "I":
        return number, Insert(7, new)
    if kind == "D":
        return number, Delete(7, old, "O")
    unsent = tuple(
        UNCHANGED if draw(st.booleans()) and len(value or b"") > 5 else value for value in new
    )
    return number, Update(7, unsent, old, "O")


def expected(messages: Sequence[tuple[int, Parsed]]) -> list[bytes]:
    """One by one."""
    found = []
    for number, message in messages:
        match message:
            case Insert(_, new):
                found.append(line(number, b"I", (new[0], new[2])))
            case Delete(_, old, _):
                found.append(line(number, b"D", (old[0], old[2])))
            case Update(_, new, old, _):
                assert old is not None
                came = tuple(old[n] if new[n] is UNCHANGED else new[n] for n in (0, 2))
                if came != (old[0], old[2]):
                    found += [line(number, b"D", (old[0], old[2])), line(number, b"I", came)]
    return sorted(found)


@settings(deadline=None)
@given(st.lists(changes(), min_size=1, max_size=30), st.booleans())
def test_by_the_thousand_is_as_one_by_one(
    messages: list[tuple[int, Parsed]], in_chunk: bool
) -> None:
    messages.sort(key=lambda each: each[0])
    rows = laid_out(messages, in_chunk=in_chunk)
    assert not decode(rows, SOURCE).marked
    assert lines(rows) == expected(messages)


def test_long_values_take_the_other_way_and_give_the_same() -> None:
    value = b"long \\ \t" * 1000
    rows = laid_out([(0, Insert(7, (value, None, value)))])
    assert lines(rows) == [line(0, b"I", (value, value))]


# -- where images do not tell the change -------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        Update(7, (b"1", b"2", b"3")),
        Update(7, (b"1", b"2", b"3"), (b"0", None, None), "K"),
        Delete(7, (b"1", None, None), "K"),
        Insert(7, (b"1", b"2", UNCHANGED)),
        Update(7, (b"1", b"2", UNCHANGED), (b"1", b"2", UNCHANGED), "O"),
    ],
)
def test_without_the_old_row_the_transaction_is_marked(message: Parsed) -> None:
    found = decode(laid_out([(0, Insert(7, (b"1", b"2", b"3"))), (1, message)]), SOURCE)
    assert 1 in found.marked


def test_a_captured_column_that_is_gone_or_of_another_type_marks_the_transaction() -> None:
    for columns in (
        (RelationColumn("a", 25, -1, True),),
        (RelationColumn("a", 25, -1, True), RelationColumn("c", 23, -1, True)),
    ):
        layout = RelationMessage(7, "public", "t", "f", columns)
        found = decode(laid_out([(2, Insert(7, (b"1",) * len(columns)))], layout), SOURCE)
        assert found.marked == {2}
        assert not found.images


def test_columns_are_found_by_name_wherever_they_stand() -> None:
    layout = RelationMessage(
        7, "public", "part", "f", tuple(RelationColumn(name, 25, -1, True) for name in "cxab")
    )
    rows = laid_out([(0, Insert(7, (b"c", b"x", b"a", b"b")))], layout)
    assert lines(rows) == [line(0, b"I", (b"a", b"c"))]


def test_truncations_are_returned_by_relation() -> None:
    rows = laid_out(
        [(0, Insert(7, (b"1", b"2", b"3"))), (1, Truncate((7, 9))), (2, Truncate((9,)))]
    )
    assert rows.truncated() == [(1, 7), (1, 9), (2, 9)]
    assert len(rows.changes().letters) == 1


# -- what is not as it should be is an error -----------------------------------------------------


def test_a_row_that_does_not_fit_its_layout_is_an_error() -> None:
    with pytest.raises(WalNotUnderstood):
        decode(laid_out([(0, Insert(7, (b"1", b"2")))]), SOURCE)


def test_a_row_with_bytes_left_over_is_an_error() -> None:
    rows = laid_out([(0, Insert(7, (b"1", b"2", b"3")))])
    longer = Rows(
        rows.data,
        rows.starts,
        rows.ends + 1,
        rows.letters,
        rows.transactions,
        rows.layouts,
        rows.trailer,
    )
    with pytest.raises(WalNotUnderstood, match="cannot decode"):
        decode(longer, SOURCE)


def test_a_row_without_a_layout_is_an_error() -> None:
    rows = laid_out([(0, Insert(8, (b"1", b"2", b"3")))])
    with pytest.raises(WalNotUnderstood):
        decode(rows, SOURCE)
