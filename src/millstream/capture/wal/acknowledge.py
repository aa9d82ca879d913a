"""The position that may be acknowledged to the server: the minimum over the positions of all
buffers.

    handed      rows of transactions up to here were passed on to the buffer
    durable     all rows handed to it up to here are on disk
    marker      everything up to here was passed on: a marker, which follows all rows received before it

The position of a buffer is its marker if all rows handed to it are durable, otherwise the durable
ones' position. So a buffer whose table nobody writes to advances by markers alone, and a slow
buffer retains WAL for all. Until every buffer has seen a marker, nothing is acknowledged. Without
buffers, the last marker is acknowledged.

Two buffers, a and b; the server sends rows of a up to 20, then a keepalive at 30, which becomes a
marker:

                                    a  handed  durable  marker  position      b  marker  position     acknowledged
    rows up to 20 are handed to a          20        0       0         0              0         0                0
    the marker 30 arrives                  20        0      30         0             30        30                0
    the rows are durable                   20       20      30        30             30        30               30

Acknowledging the keepalive on arrival would let the server discard the rows up to 20 before they
are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class BufferPositions:
    """The positions of one buffer."""

    handed: int = 0
    durable: int = 0
    marker: int = 0

    @property
    def position(self) -> int:
        """The position before which all rows of the buffer are durable; 0 while unknown."""
        if not self.marker:
            return 0
        return max(self.marker, self.durable) if self.durable >= self.handed else self.durable


@dataclass(frozen=True)
class Ledger:
    """All buffers, by source. Each method returns the ledger after the event."""

    buffers: Mapping[int, BufferPositions] = field(default_factory=dict)
    marker: int = 0
    acknowledged: int = 0
    """The server may discard WAL before this position. It never decreases."""

    @classmethod
    def starting_at(cls, cursor: int, buffers: Iterable[int]) -> Ledger:
        """Return a ledger in which everything before the cursor is durable, and nothing is known
        after it.
        """
        return cls({buffer: BufferPositions(cursor, cursor) for buffer in buffers}, 0, cursor)

    def handed(self, buffer: int, lsn: int) -> Ledger:
        """Note that rows of a transaction ending at `lsn` were handed to the buffer."""
        positions = self.buffers[buffer]
        return self._with({buffer: replace(positions, handed=max(positions.handed, lsn))})

    def reach_marker(self, lsn: int) -> Ledger:
        """Note a marker, which follows everything handed so far.

        Ignore one that is older than the last.
        """
        lsn = max(lsn, self.marker)
        marker = {
            buffer: replace(positions, marker=lsn) for buffer, positions in self.buffers.items()
        }
        return replace(self._with(marker), marker=lsn)._counted()

    def durable(self, buffer: int, lsn: int) -> Ledger:
        """Note that all rows handed to the buffer up to `lsn` are on disk."""
        positions = self.buffers[buffer]
        return self._with(
            {buffer: replace(positions, durable=max(positions.durable, lsn))}
        )._counted()

    def join(self, buffer: int) -> Ledger:
        """Add a buffer, about which nothing is known before the next marker."""
        return self._with({buffer: self.buffers.get(buffer, BufferPositions())})

    def leave(self, buffer: int) -> Ledger:
        """Remove a buffer, which then no longer holds back the others."""
        return replace(
            self, buffers={each: s for each, s in self.buffers.items() if each != buffer}
        )._counted()

    def _with(self, changed: Mapping[int, BufferPositions]) -> Ledger:
        return replace(self, buffers={**self.buffers, **changed})

    def _counted(self) -> Ledger:
        least = min(
            (positions.position for positions in self.buffers.values()), default=self.marker
        )
        return replace(self, acknowledged=max(self.acknowledged, least))
