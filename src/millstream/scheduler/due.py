"""Select the stream tables that are due: their schedule asks for a refresh, and no back-off holds
them back.
"""

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


def triable(tables: Sequence[StreamTable], now: datetime) -> list[StreamTable]:
    """Return the refreshable stream tables that no back-off holds back at `now`."""
    return [
        table
        for table in refreshable(tables)
        if table.next_try_at is None or table.next_try_at <= now
    ]


def due(tables: Sequence[StreamTable], now: datetime) -> list[StreamTable]:
    """Return the triable stream tables whose schedule asks for a refresh at `now`."""
    return [
        table
        for table in triable(tables, now)
        if Cadence.parse(table.schedule).due(table.cut_at, now)
    ]


def next_due_at(table: StreamTable, now: datetime) -> datetime | None:
    """Return when a stream table becomes due by its own schedule: `now` if it is due; None if
    never.

    After a failed refresh it is not due before `next_try_at`.
    """
    deadline = Cadence.parse(table.schedule).due_at(table.cut_at)
    if deadline is None or table.status not in REFRESHED:
        return None
    return max(now, deadline, table.next_try_at or now)
