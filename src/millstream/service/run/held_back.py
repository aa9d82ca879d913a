"""The alert about change buffers that grow because a suspended or manual stream table does not read
them.

A buffer is pruned when all of its readers have read it, so it grows without limit if one reader
stops. The alert is sent once for each source whose buffer is larger than `slot_lag_warning`, and
again only after it has been below half of that.

>>> watch, settings = HeldBackWatch(), Settings(slot_lag_warning=100, slot_lag_critical=1000)
>>> sizes = [HeldBackBuffer("t", "changes_1", size, 1, ["st"], None) for size in (90, 110, 60, 110, 40, 110)]
>>> [len(watch.look([one], settings)) for one in sizes]
[0, 1, 0, 0, 0, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from millstream.postgres import notifications
from millstream.postgres.connection import Connection
from millstream.settings import Settings


@dataclass(frozen=True)
class HeldBackBuffer:
    """A change buffer that waits for stream tables that are not refreshed by schedule."""

    source: str
    buffer: str
    size_bytes: int
    rows: int
    held_back_by: list[str]
    since: datetime | None
    """When they were last refreshed."""


@dataclass
class HeldBackWatch:
    """The buffers about which an alert was sent."""

    told: frozenset[str] = frozenset()

    def look(self, buffers: Sequence[HeldBackBuffer], settings: Settings) -> list[HeldBackBuffer]:
        """Return the buffers for which to send an alert."""
        limit = settings.slot_lag_warning
        large = [
            one for one in buffers if one.size_bytes > limit / (2 if one.source in self.told else 1)
        ]
        new = [one for one in large if one.source not in self.told]
        self.told = frozenset(one.source for one in large)
        return new


def read(conn: Connection) -> list[HeldBackBuffer]:
    """Return the buffers that are held back, largest first."""
    query = "SELECT source, buffer, size_bytes, rows, held_back_by, since FROM millstream.held_back_buffers()"
    return [HeldBackBuffer(*row) for row in conn.execute(query)]


def send(conn: Connection, buffers: Sequence[HeldBackBuffer], settings: Settings) -> None:
    """Send an alert for each of these."""
    for one in buffers:
        notifications.alert(
            conn, "changes_held_back", **asdict(one), limit_bytes=settings.slot_lag_warning
        )
