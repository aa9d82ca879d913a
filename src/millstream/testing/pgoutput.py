"""Messages of the log, made by hand: what a server would send, for tests without one."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from millstream.capture.wal.messages.protocol import (
    Begin,
    Cell,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Parsed,
    RelationMessage,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Unknown,
    Update,
)


def frame(message: bytes, *, start: int = 0) -> bytes:
    """Return a message as it travels."""
    return struct.pack(">cQQq", b"w", start, start, 0) + message


def keepalive(end: int, *, wants_reply: bool = False) -> bytes:
    """Return a keepalive as it travels."""
    return struct.pack(">cQqB", b"k", end, 0, wants_reply)


def encode(message: Parsed, xid: int | None = None) -> bytes:
    """Return the bytes of a message; with `xid`, as in a chunk of that (sub)transaction."""
    chunk = b"" if xid is None else struct.pack(">I", xid)
    match message:
        case Begin(lsn, of):
            return struct.pack(">cQqI", b"B", lsn, 0, of)
        case Commit(lsn, end):
            return struct.pack(">cBQQq", b"C", 0, lsn, end, 0)
        case RelationMessage(relid, schema, name, identity, columns):
            head = _text("" if schema == "pg_catalog" else schema) + _text(name) + identity.encode()
            listed = b"".join(
                struct.pack(">B", c.is_key)
                + _text(c.name)
                + struct.pack(">Ii", c.type_oid, c.typmod)
                for c in columns
            )
            return (
                b"R"
                + chunk
                + struct.pack(">I", relid)
                + head
                + struct.pack(">H", len(columns))
                + listed
            )
        case Insert(relid, new):
            return b"I" + chunk + struct.pack(">I", relid) + b"N" + _cells(new)
        case Update(relid, new, old, old_is):
            before = b"" if old is None else old_is.encode() + _cells(old)
            return b"U" + chunk + struct.pack(">I", relid) + before + b"N" + _cells(new)
        case Delete(relid, old, old_is):
            return b"D" + chunk + struct.pack(">I", relid) + old_is.encode() + _cells(old)
        case Truncate(relids):
            return b"T" + chunk + struct.pack(f">IB{len(relids)}I", len(relids), 0, *relids)
        case LogicalMessage(is_transactional, lsn, prefix, content):
            head = struct.pack(">BQ", is_transactional, lsn) + _text(prefix)
            return b"M" + chunk + head + struct.pack(">I", len(content)) + content
        case StreamStart(of, is_first):
            return struct.pack(">cIB", b"S", of, is_first)
        case StreamStop():
            return b"E"
        case StreamCommit(of, lsn, end):
            return struct.pack(">cIBQQq", b"c", of, 0, lsn, end, 0)
        case StreamAbort(of, sub):
            return struct.pack(">cII", b"A", of, sub)
        case Unknown(letter):
            return letter.encode()


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _cells(cells: Sequence[Cell]) -> bytes:
    return struct.pack(">H", len(cells)) + b"".join(_cell(cell) for cell in cells)


def _cell(cell: Cell) -> bytes:
    if cell is None:
        return b"n"
    return b"t" + struct.pack(">I", len(cell)) + cell if isinstance(cell, bytes) else b"u"
