"""The changes of one transaction as they were received: the latest in memory, the others on disk.

    file   message, message, ...      written when memory is short
    tail   message, message, ...      received since

When a subtransaction aborts, all changes since its first one are removed: those that follow
are its own or its children's. Row layouts stay, because the server does not send them again.

The file has no name, so a killed process leaves no file behind.
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
    """Consecutive changes with the same layouts."""

    layouts: Layouts
    messages: list[bytes]


@dataclass
class SpilledChanges:
    """The changes of a transaction so far."""

    layouts: list[tuple[int, Layouts]]
    """Layouts of rows, each with the index of the first change that they apply to."""
    tail: list[bytes] = field(default_factory=list)
    size: int = 0
    """Number of bytes in memory."""
    on_disk: int = 0
    """Number of changes in the file."""
    _file: IO[bytes] | None = None
    _file_size: int = 0
    _first: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By subtransaction: the number of changes, and of bytes in the file, before its first change.
    """

    @property
    def count(self) -> int:
        return self.on_disk + len(self.tail)

    def relayout(self, layouts: Layouts) -> None:
        """Use other layouts for the following changes."""
        self.layouts.append((self.count, layouts))

    def open_sub(self, subxid: int) -> None:
        """Record that the next change belongs to this subtransaction."""
        if subxid not in self._first:
            self._first[subxid] = (
                self.count,
                self._file_size + self.size + _LENGTH.size * len(self.tail),
            )

    def abort_sub(self, subxid: int) -> None:
        """Remove the changes of a subtransaction, if there are any."""
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
        """Write the changes in memory to disk."""
        try:
            self._write(self.tail)
        except OSError as error:
            raise SpillFailed.into(tempfile.gettempdir(), str(error)) from error
        self._file_size += self.size + _LENGTH.size * len(self.tail)
        self.on_disk += len(self.tail)
        self.tail, self.size = [], 0
        failpoint("wal_spilled")

    def _write(self, messages: Sequence[bytes]) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="millstream-spill-")  # noqa: SIM115 - closed by `close`
        for message in messages:
            self._file.write(_LENGTH.pack(len(message)))
            self._file.write(message)
        # A full disk is reported here, not when the changes are read back.
        self._file.flush()

    def as_one(self, rows: int, size: int) -> Piece | None:
        """Return all changes as one piece if they are in memory, few, and have one layout, as in
        most transactions.
        """
        if (
            self._file is not None
            or len(self.layouts) > 1
            or len(self.tail) > rows
            or self.size > size
        ):
            return None
        return Piece(self.layouts[0][1], self.tail)

    def pieces(self, rows: int, size: int) -> Iterator[Piece]:
        """Yield all changes in order, in pieces of at most `rows` changes and about `size` bytes."""
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
        """Close the file."""
        if self._file is not None:
            # If the disk is full, closing cannot write the rest either.
            with suppress(OSError):
                self._file.close()
            self._file = None
