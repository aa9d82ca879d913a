"""The text that COPY reads: one line for each image, and PostgreSQL reads back what was sent."""

from __future__ import annotations

import numpy as np

from millstream.capture.wal.messages.copy_text import copy_text
from millstream.capture.wal.messages.decode import decode
from millstream.capture.wal.messages.protocol import (
    HEADER,
    Cells,
    Insert,
    RelationColumn,
    RelationMessage,
    Update,
)
from millstream.capture.wal.messages.rows import lay_out
from millstream.catalog.sources import CapturedColumn, Source
from millstream.postgres.connection import Connection
from millstream.testing.pgoutput import encode, frame

LAYOUT = RelationMessage(
    7, "public", "t", "f", tuple(RelationColumn(name, 25, -1, True) for name in "ab")
)
SOURCE = Source(
    7,
    "public",
    "t",
    "WAL",
    (CapturedColumn(1, "a", 25, "text"), CapturedColumn(2, "b", 25, "text")),
)
# What COPY has a meaning for, what is nearly that, and nothing at all.
VALUES: list[Cells] = [
    (b"plain", b""), (None, b"\\N"), (b"\\", b"a\\tb"), (b"tab\t", b"\nline"), (b"\r\b\v\f", None),
    ("ü✓".encode(), b"x" * 500),
]  # fmt: skip


def text_of(*messages: Insert | Update) -> bytes:
    frames = [frame(encode(message)) for message in messages]
    at, transactions = np.full(len(frames), HEADER + 1, np.int64), np.zeros(len(frames), np.int64)
    found = decode(lay_out(frames, at, transactions, {7: LAYOUT}, [1000]), SOURCE)
    return b"".join(copy_text(images) for images in found.images)


def test_an_update_is_a_line_that_goes_and_a_line_that_comes() -> None:
    lines = text_of(Update(7, (b"new", None), (b"old", b"x"), "O")).splitlines()
    assert sorted(lines) == [b"1000\tD\tl\told\tx", b"1000\tI\tl\tnew\t\\N"]


def test_the_messages_are_left_as_they_were() -> None:
    """A tab is lent to the byte before each value; building the text twice gives the same text."""
    frames = [frame(encode(Insert(7, cells))) for cells in VALUES]
    at, transactions = np.full(len(frames), HEADER + 1, np.int64), np.zeros(len(frames), np.int64)
    rows = lay_out(frames, at, transactions, {7: LAYOUT}, [1000])
    before = bytes(rows.data)
    [images] = decode(rows, SOURCE).images
    assert copy_text(images) == copy_text(images)
    assert bytes(rows.data) == before


def test_postgresql_reads_back_what_was_sent(conn: Connection) -> None:
    conn.execute(
        "CREATE TEMPORARY TABLE buffer (xid xid8, action text, origin text, a text, b text)"
    )
    with conn.cursor() as cursor, cursor.copy("COPY buffer FROM STDIN") as copy:
        copy.write(text_of(*(Insert(7, cells) for cells in VALUES)))
    found = conn.execute("SELECT a, b FROM buffer").fetchall()
    sent = [
        tuple(cell.decode() if isinstance(cell, bytes) else cell for cell in cells)
        for cells in VALUES
    ]
    assert sorted(found, key=str) == sorted(sent, key=str)
