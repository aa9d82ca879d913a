"""Read the change buffers at a cut, whoever filled them.

    told by triggers     in the cut's own transaction, whose snapshot ends the slice
    told by the log      in a session beside it, once the log has come past the cut; the cut's snapshot is a condition

A transaction that the cut sees has its commit in the log before any message that is written after the cut. So when all
before such a message is durable, all that belongs to the slice is in the buffer, and what lies there beyond the cut is
left for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.capture.buffer import slices
from millstream.capture.buffer.slices import Pair, Pending
from millstream.catalog.sources import Source
from millstream.errors import MillstreamError
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection

# A session that sees in the buffers all that was committed before it was asked for.
Log = Callable[[], Connection]


@dataclass
class Buffers:
    """The buffers at a cut."""

    conn: Connection
    end: Snapshot
    sources: Mapping[int, Source] = field(default_factory=dict)
    log: Connection | None = None
    trouble: MillstreamError | None = None
    """Why the log has not come as far as the cut."""

    def reach(self, asked: Sequence[Pair], log: Log | None) -> None:
        """Wait for the log, where any of these slices needs it."""
        if log is None or not any(self._is_logged(*pair) for pair in asked):
            return
        try:
            self.log = log()
        except MillstreamError as error:
            self.trouble = error

    def lacks(self, relid: int, frontier: Snapshot) -> MillstreamError | None:
        """Return why this slice cannot be read; "" if it can."""
        return self.trouble if self._is_logged(relid, frontier) else None

    def _is_logged(self, relid: int, frontier: Snapshot) -> bool:
        source = self.sources.get(relid)
        return source is not None and source.needs_wal(frontier)

    def pending(self, pairs: Sequence[Pair]) -> dict[Pair, Pending]:
        """Return what is in each slice."""
        logged = [pair for pair in pairs if self._is_logged(*pair)]
        triggered = [pair for pair in pairs if not self._is_logged(*pair)]
        found = dict(zip(triggered, slices.pending(self.conn, triggered, sources=self.sources), strict=True))
        if logged:
            assert self.log is not None, "waited for WAL capture"
            waiting = slices.pending(self.log, logged, sources=self.sources, until=self.end)
            found |= dict(zip(logged, waiting, strict=True))
        return found

    def slice(self, relid: int, frontier: Snapshot) -> tuple[Connection, str]:
        """Return the session that reads a slice, and the condition for its rows."""
        parts = [slices.slice_condition(frontier)]
        if relid in self.sources:
            parts.append(slices.origin_condition(self.sources[relid]))
        if not self._is_logged(relid, frontier):
            return self.conn, " AND ".join(part.as_string(self.conn) for part in parts)
        assert self.log is not None, "waited for WAL capture"
        parts.append(slices.seen_condition(self.end))
        return self.log, " AND ".join(part.as_string(self.conn) for part in parts)
