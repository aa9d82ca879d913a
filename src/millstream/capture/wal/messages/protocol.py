"""Parse what is sent on a replication connection: CopyData frames, and the pgoutput messages in
them.

    frame     w  start end clock message      a message of pgoutput
              k  end clock reply?             a keepalive: the server has sent everything up to `end`
              r  write flush apply clock      our answer

    message   B begin  C commit  R relation  Y type  O origin  I insert  U update  D delete  T truncate  M message
              S E c A                         a transaction streamed before its end: chunk, chunk's end, commit, abort

In a chunk (protocol 2) every message inside has the (sub)transaction's id after its first letter.
An unknown letter becomes `Unknown` and is ignored: new server versions add messages, and 18 sends
aborts without being asked.

Rows are parsed one by one here, for tests and debugging; `decode.py` parses them in bulk.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from millstream.errors import WalNotUnderstood

# The letter, the WAL position of the message, the end of WAL, the server's clock.
HEADER = 25
DATA, KEEPALIVE = b"w"[0], b"k"[0]
_KEEPALIVE = struct.Struct(">xQqB")
_STATUS = struct.Struct(">cQQQqB")
# The server counts from the year 2000; it shows our clock in pg_stat_replication.
_EPOCH = 946_684_800


# -- frames ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keepalive:
    """The server has nothing before `end` that it has not sent."""

    end: int
    wants_reply: bool


def keepalive(frame: bytes) -> Keepalive:
    """Read a `k` frame."""
    end, _, reply = _KEEPALIVE.unpack_from(frame)
    return Keepalive(end, bool(reply))


def status(position: int, *, ask: bool = False) -> bytes:
    """Return the status message that everything up to `position` is durable; with `ask`, the server
    answers at once.

    Written and flushed are always the same: a server that hears of more written than flushed stops
    sending keepalives.
    """
    if position <= 0:
        raise ValueError("a status without a position would release nothing, or everything")
    clock = int((time.time() - _EPOCH) * 1_000_000)
    return _STATUS.pack(b"r", position, position, position, clock, ask)


# -- messages --------------------------------------------------------------------------------


class Unchanged:
    """A large value that was not sent because it did not change."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()
Cell: TypeAlias = "bytes | Unchanged | None"
Cells: TypeAlias = "tuple[Cell, ...]"


@dataclass(frozen=True)
class Begin:
    commit_lsn: int
    xid: int


@dataclass(frozen=True)
class Commit:
    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True)
class RelationColumn:
    name: str
    type_oid: int
    typmod: int
    is_key: bool


@dataclass(frozen=True)
class RelationMessage:
    """The layout of the rows that follow."""

    relid: int
    schema: str
    name: str
    identity: str
    """The replica identity: d, n, f or i."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Insert:
    relid: int
    new: Cells


@dataclass(frozen=True)
class Update:
    relid: int
    new: Cells
    old: Cells | None = None
    old_is: Literal["", "K", "O"] = ""
    """O: the whole old row. K: its key only, all else looks like NULL and is not."""


@dataclass(frozen=True)
class Delete:
    relid: int
    old: Cells
    old_is: Literal["K", "O"]


@dataclass(frozen=True)
class Truncate:
    relids: tuple[int, ...]


@dataclass(frozen=True)
class LogicalMessage:
    """A message written by `pg_logical_emit_message`."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


@dataclass(frozen=True)
class StreamStart:
    xid: int
    is_first: bool


@dataclass(frozen=True)
class StreamStop:
    pass


@dataclass(frozen=True)
class StreamCommit:
    xid: int
    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True)
class StreamAbort:
    xid: int
    subxid: int


@dataclass(frozen=True)
class Unknown:
    """A message that means nothing to us: origins, types, and what servers may add."""

    letter: str


Parsed: TypeAlias = (
    "Begin | Commit | RelationMessage | Insert | Update | Delete | Truncate | LogicalMessage"
    " | StreamStart | StreamStop | StreamCommit | StreamAbort | Unknown"
)


class Reader:
    """Reads a message from left to right."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def number(self, size: Literal[1, 2, 4, 8], *, signed: bool = False) -> int:
        return int.from_bytes(self.bytes(size), "big", signed=signed)

    def bytes(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if size < 0 or self.at > len(self.data):
            raise WalNotUnderstood.at(self.data, "it ends too early")
        return self.data[start : self.at]

    def text(self) -> str:
        """Read a C string. Names may have any encoding if the database has none."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise WalNotUnderstood.at(self.data, "a text in it has no end")
        start, self.at = self.at, end + 1
        return self.data[start:end].decode(errors="surrogateescape")

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read several numbers at once, because transactions may be many and small."""
        return layout.unpack(self.bytes(layout.size))

    def letter(self) -> str:
        return chr(self.number(1))

    def cells(self) -> Cells:
        return tuple(self._cell() for _ in range(self.number(2)))

    def _cell(self) -> Cell:
        kind = self.letter()
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        if kind == "t":
            return self.bytes(self.number(4))
        raise WalNotUnderstood.at(self.data, f"a value of kind {kind!r}")


def parse(message: bytes, *, at: int = 0, in_chunk: bool = False) -> Parsed:
    """Parse the message that starts at `at`; `in_chunk` if a transaction id follows its letter."""
    letter = chr(message[at])
    read = _READERS.get(letter)
    if read is None:
        return Unknown(letter)
    reader = Reader(message, at + 1)
    if in_chunk and letter in IN_CHUNK:
        reader.number(4)
    return read(reader)


# Those that carry a transaction id in a chunk.
IN_CHUNK = frozenset("RYIUDTM")


_BEGIN, _COMMIT = struct.Struct(">QqI"), struct.Struct(">BQQ")


def _begin(r: Reader) -> Begin:
    lsn, _, xid = r.numbers(_BEGIN)
    return Begin(lsn, xid)


def _commit(r: Reader) -> Commit:
    _, lsn, end = r.numbers(_COMMIT)
    return Commit(lsn, end)


def _relation(r: Reader) -> RelationMessage:
    # A schema without a name is pg_catalog.
    relid, schema, name, identity = r.number(4), r.text() or "pg_catalog", r.text(), r.letter()
    return RelationMessage(
        relid, schema, name, identity, tuple(_column(r) for _ in range(r.number(2)))
    )


def _column(r: Reader) -> RelationColumn:
    flags, name, type_oid, typmod = r.number(1), r.text(), r.number(4), r.number(4, signed=True)
    return RelationColumn(name, type_oid, typmod, bool(flags & 1))


def _insert(r: Reader) -> Insert:
    relid, _ = r.number(4), r.letter()
    return Insert(relid, r.cells())


def _update(r: Reader) -> Update:
    relid, kind = r.number(4), r.letter()
    if kind == "N":
        return Update(relid, r.cells())
    old = r.cells()
    r.letter()
    return Update(relid, r.cells(), old, "O" if kind == "O" else "K")


def _delete(r: Reader) -> Delete:
    relid, kind = r.number(4), r.letter()
    return Delete(relid, r.cells(), "O" if kind == "O" else "K")


def _truncate(r: Reader) -> Truncate:
    count, _ = r.number(4), r.number(1)
    return Truncate(tuple(r.number(4) for _ in range(count)))


def _message(r: Reader) -> LogicalMessage:
    flags, lsn, prefix = r.number(1), r.number(8), r.text()
    return LogicalMessage(bool(flags & 1), lsn, prefix, r.bytes(r.number(4)))


def _stream_start(r: Reader) -> StreamStart:
    return StreamStart(r.number(4), bool(r.number(1)))


def _stream_commit(r: Reader) -> StreamCommit:
    xid, _, lsn, end = r.number(4), r.number(1), r.number(8), r.number(8)
    return StreamCommit(xid, lsn, end)


def _stream_abort(r: Reader) -> StreamAbort:
    return StreamAbort(r.number(4), r.number(4))


_READERS: Mapping[str, Callable[[Reader], Parsed]] = {
    "B": _begin,
    "C": _commit,
    "R": _relation,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _message,
    "S": _stream_start,
    "E": lambda _: StreamStop(),
    "c": _stream_commit,
    "A": _stream_abort,
}
