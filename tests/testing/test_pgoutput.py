"""Messages made by hand are read back as what they were made of."""

from __future__ import annotations

import pytest

from millstream.capture.wal.messages.protocol import (
    HEADER,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Parsed,
    RelationColumn,
    RelationMessage,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Update,
    parse,
)
from millstream.testing.pgoutput import encode, frame, keepalive

MESSAGES: list[Parsed] = [
    Begin(10, 900),
    Commit(10, 20),
    RelationMessage(
        7,
        "public",
        "t",
        "f",
        (RelationColumn("id", 23, -1, True), RelationColumn("v", 25, -1, False)),
    ),
    Insert(7, (b"1", None)),
    Update(7, (b"1", b"new"), (b"1", b"old"), "O"),
    Update(7, (b"1", b"new")),
    Delete(7, (b"1", None), "K"),
    Truncate((7, 8)),
    LogicalMessage(True, 10, "millstream", b"x"),
    StreamStart(900, True),
    StreamStop(),
    StreamCommit(900, 10, 20),
    StreamAbort(900, 901),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_each_message_is_read_back(message: Parsed) -> None:
    assert parse(encode(message)) == message


def test_a_frame_has_a_header_before_its_message() -> None:
    assert frame(b"B...")[HEADER:] == b"B..."
    assert keepalive(5, wants_reply=True)[:1] == b"k"
