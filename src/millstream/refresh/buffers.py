"""Read the change buffers at a cut, whether triggers or WAL capture filled them.

    from triggers     read in the cut's own transaction, whose snapshot ends the slice
    from WAL          read in a second session, after WAL capture has passed the cut; the cut's snapshot is a condition

A transaction that the cut sees has its commit in WAL before any message that is written after the
cut. So when everything before such a message is durable, the buffer contains the whole slice. Rows
of transactions that the cut does not see belong to a later slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from millstream.capture.buffer import slices
from millstream.capture.buffer.slices import Pair, Pending
from millstream.catalog.sources import Source
from millstream.errors import MillstreamError
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.composed import all_of
from millstream.postgres.connection import Connection

# Opens a session in which the buffers contain everything that was committed before the call.
WalSession = Callable[[], Connection]


@dataclass
class Buffers:
    """The buffers at a cut."""

    conn: Connection
    end: Snapshot
    sources: Mapping[int, Source] = field(default_factory=dict)
    wal: Connection | None = None
    """A session that sees what WAL capture has stored up to the cut, if a slice needs it."""
    trouble: MillstreamError | None = None
    """Why WAL capture has not reached the cut."""

    def reach(self, asked: Sequence[Pair], wal: WalSession | None) -> None:
        """Wait for WAL capture, if any of these slices needs it."""
        if wal is None or not any(self._needs_wal(*pair) for pair in asked):
            return
        try:
            self.wal = wal()
        except MillstreamError as error:
            self.trouble = error

    def lacks(self, relid: int, frontier: Snapshot) -> MillstreamError | None:
        """Return the error because of which this slice cannot be read; None if it can."""
        return self.trouble if self._needs_wal(relid, frontier) else None

    def _needs_wal(self, relid: int, frontier: Snapshot) -> bool:
        source = self.sources.get(relid)
        return source is not None and source.needs_wal(frontier)

    def pending(self, pairs: Sequence[Pair]) -> dict[Pair, Pending]:
        """Return what is in each slice."""
        from_wal = [pair for pair in pairs if self._needs_wal(*pair)]
        from_triggers = [pair for pair in pairs if not self._needs_wal(*pair)]
        found = dict(
            zip(
                from_triggers,
                slices.pending(self.conn, from_triggers, sources=self.sources),
                strict=True,
            )
        )
        if from_wal:
            assert self.wal is not None, "waited for WAL capture"
            waiting = slices.pending(self.wal, from_wal, sources=self.sources, until=self.end)
            found |= dict(zip(from_wal, waiting, strict=True))
        return found

    def slice(self, relid: int, frontier: Snapshot) -> tuple[Connection, sql.Composed]:
        """Return the session that reads a slice, and the condition for its rows."""
        parts = [slices.slice_condition(frontier)]
        if relid in self.sources:
            parts.append(slices.origin_condition(self.sources[relid]))
        if not self._needs_wal(relid, frontier):
            return self.conn, all_of(parts)
        assert self.wal is not None, "waited for WAL capture"
        parts.append(slices.seen_condition(self.end))
        return self.wal, all_of(parts)
