"""The changes of one transaction, as they were received: the last of them in memory, the rest on disk.

    file   message, message, ...      written when memory is short
    tail   message, message, ...      what came since

A sub-transaction that aborts takes its changes back: all that came since its first one, since what comes after it
before its abort is its own or its children's. The layouts of rows stay: the server believes them sent.

The file has no name: a process that is killed leaves none behind.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TypeAlias

from millstream.capture.wal.messages.protocol import RelationMessage
from millstream.errors import SpillFailed
from millstream.observe.failpoint import failpoint

Layouts: TypeAlias = Mapping[int, RelationMessage]

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class Piece:
    """Some consecutive changes under the same layouts."""

    layouts: Layouts
    messages: list[bytes]


@dataclass
class SpilledChanges:
    """What a transaction has done so far."""

    layouts: list[tuple[int, Layouts]]
    """From the change of that index on, rows look like this."""
    tail: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes in memory."""
    on_disk: int = 0
    """Changes in the file."""
    _file: IO[bytes] | None = None
    _file_size: int = 0
    _first: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By sub-transaction: how many changes, and how many bytes of the file, had come before its first."""

    @property
    def count(self) -> int:
        return self.on_disk + len(self.tail)

    def relayout(self, layouts: Layouts) -> None:
        """Rows look different from here on."""
        self.layouts.append((self.count, layouts))

    def open_sub(self, subxid: int) -> None:
        """The next change is of this sub-transaction; its first is remembered."""
        if subxid not in self._first:
            self._first[subxid] = (self.count, self._file_size + self.size + _LENGTH.size * len(self.tail))

    def abort_sub(self, subxid: int) -> None:
        """Take back what a sub-transaction did; one that did nothing here is none of ours."""
        if subxid not in self._first:
            return
        count, offset = self._first[subxid]
        self._truncate(count, offset)
        self._first = {sub: first for sub, first in self._first.items() if first[0] < count}
        self.layouts = [(min(index, count), layouts) for index, layouts in self.layouts]

    def _truncate(self, count: int, offset: int) -> None:
        kept = max(count - self.on_disk, 0)
        self.size -= sum(len(message) for message in self.tail[kept:])
        del self.tail[kept:]
        if count < self.on_disk and self._file is not None:
            self._file.truncate(offset)
            self._file.seek(offset)
            self._file_size, self.on_disk = offset, count

    def spill(self) -> None:
        """Write what is in memory to disk."""
        try:
            self._write(self.tail)
        except OSError as error:
            raise SpillFailed.into(tempfile.gettempdir(), str(error)) from error
        self._file_size += self.size + _LENGTH.size * len(self.tail)
        self.on_disk += len(self.tail)
        self.tail, self.size = [], 0
        failpoint("log_spilled")

    def _write(self, messages: Sequence[bytes]) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="millstream-spill-")  # noqa: SIM115 - closed by `close`
        for message in messages:
            self._file.write(_LENGTH.pack(len(message)))
            self._file.write(message)
        # A disk that is full is told here, and not when the rows are read back.
        self._file.flush()

    def as_one(self, rows: int, size: int) -> Piece | None:
        """All changes as one piece, if they are in memory, few and alike: most transactions are."""
        if self._file is not None or len(self.layouts) > 1 or len(self.tail) > rows or self.size > size:
            return None
        return Piece(self.layouts[0][1], self.tail)

    def pieces(self, rows: int, size: int) -> Iterator[Piece]:
        """All changes in order, in pieces of at most so many changes and about so many bytes."""
        bounds = [*(index for index, _ in self.layouts[1:]), self.count]
        layouts = [each for _, each in self.layouts]
        part: list[bytes] = []
        part_size = place = 0
        for index, message in enumerate(self._all()):
            if index == bounds[place] or len(part) == rows or part_size >= size:
                if part:
                    yield Piece(layouts[place], part)
                part, part_size = [], 0
                while index == bounds[place]:
                    place += 1
            part.append(message)
            part_size += len(message)
        if part:
            yield Piece(layouts[place], part)

    def _all(self) -> Iterator[bytes]:
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self.on_disk):
                (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
                yield self._file.read(length)
        yield from self.tail

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            # What a full disk has not taken cannot be written now either.
            with suppress(OSError):
                self._file.close()
            self._file = None
