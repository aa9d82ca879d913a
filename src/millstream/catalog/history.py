"""The history of refreshes: what each did, why, from what, and what it cost.

An entry commits with the rows that the refresh applied; an entry of a failed refresh commits alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb

from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Action = Literal["NO_DATA", "DIFFERENTIAL", "FULL", "REINITIALIZE", "SKIP"]
Status = Literal["RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]
Initiator = Literal["SCHEDULER", "MANUAL", "INITIAL"]

_SQL = load("millstream.catalog", "history.sql")


@dataclass(frozen=True)
class HistoryEntry:
    """One refresh of one stream table."""

    stream_table_id: int
    action: Action
    reason: str
    status: Status
    initiated_by: Initiator
    started_at: datetime
    finished_at: datetime | None = None
    data_timestamp: datetime | None = None
    frontier: Snapshot | None = None
    rows_read: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    spark_jobs: int = 0
    # As the reports print them: values of any JSON type.
    inputs: Sequence[Mapping[str, Any]] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    id: int | None = None
    """Given by the catalog."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it: times in ISO 8601, the frontier in PostgreSQL's form."""
        times = {name: _iso(getattr(self, name)) for name in ("started_at", "finished_at", "data_timestamp")}
        frontier = str(self.frontier) if self.frontier else None
        inputs = [dict(each) for each in self.inputs]
        return {**asdict(self), **times, "frontier": frontier, "inputs": inputs, "phases": dict(self.phases)}


def add(conn: Connection, entry: HistoryEntry) -> int:
    """Record one refresh; return its id."""
    return add_all(conn, [entry])[0]


def add_unless_repeated(conn: Connection, entry: HistoryEntry) -> None:
    """Record a refresh, unless the last entry of the stream table has the same status and reason."""
    last = recent(conn, entry.stream_table_id, 1)
    if not last or (last[0].status, last[0].reason) != (entry.status, entry.reason):
        add(conn, entry)


def add_all(conn: Connection, entries: Sequence[HistoryEntry]) -> list[int]:
    """Record many refreshes with one statement; return their ids in order."""
    rows = Jsonb([entry.as_dict() for entry in entries])
    return [id for (id,) in conn.execute(_SQL["add"], (rows,))]


def recent(conn: Connection, stream_table_id: int, n: int = 20) -> list[HistoryEntry]:
    """Return the last n entries of a stream table, newest first."""
    return [_entry(row) for row in conn.execute(_SQL["recent"], (stream_table_id, n))]


def _entry(row: tuple[Any, ...]) -> HistoryEntry:
    facts = list(row)
    facts[8] = Snapshot.parse(row[8]) if row[8] else None
    return HistoryEntry(*facts)


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None
