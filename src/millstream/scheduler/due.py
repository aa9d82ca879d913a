"""Select the stream tables that are due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from millstream.catalog.stream_tables import StreamTable
from millstream.scheduler.cadence import Cadence

# A stream table in one of these states is refreshed without being named.
REFRESHED = ("ACTIVE", "INITIALIZING", "ERROR")


def refreshable(tables: Sequence[StreamTable]) -> list[StreamTable]:
    """Return the stream tables that are neither suspended nor paused."""
    return [table for table in tables if table.status in REFRESHED]


def due(tables: Sequence[StreamTable], now: datetime) -> list[StreamTable]:
    """Return the refreshable stream tables whose schedule asks for a refresh at `now`."""
    return [table for table in refreshable(tables) if Cadence.parse(table.schedule).due(table.cut_at, now)]
