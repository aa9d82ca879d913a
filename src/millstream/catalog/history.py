"""The history of refreshes: what each did, why, from which sources, and at what cost.

An entry commits with the rows that the refresh applied; an entry of a failed refresh commits alone.
A running refresh has an entry RUNNING (see `journal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from psycopg.types.json import Jsonb

from millstream.algebra.table import quoted
from millstream.errors import ProcessEnded
from millstream.frontier.snapshot import Snapshot
from millstream.postgres import notifications
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Action = Literal["NO_DATA", "DIFFERENTIAL", "FULL", "REINITIALIZE", "SKIP"]
Status = Literal["RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]
Initiator = Literal["SCHEDULER", "MANUAL", "INITIAL"]

# The most entries that one statement removes, so that transactions stay short.
PRUNED_AT_ONCE = 10_000

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
    # In the form of the printed reports: values of any JSON type.
    inputs: Sequence[Mapping[str, Any]] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    id: int | None = None
    """Given by the catalog."""

    def as_dict(self) -> dict[str, Any]:
        """Return the document for JSON: times in ISO 8601, the frontier in PostgreSQL's form."""
        times = {
            name: _iso(getattr(self, name))
            for name in ("started_at", "finished_at", "data_timestamp")
        }
        frontier = str(self.frontier) if self.frontier else None
        inputs = [dict(each) for each in self.inputs]
        return {
            **asdict(self),
            **times,
            "frontier": frontier,
            "inputs": inputs,
            "phases": dict(self.phases),
        }


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


def exchange_running(
    conn: Connection,
    ended: Sequence[int],
    begun: Sequence[HistoryEntry],
    transaction_id: int | None,
) -> list[int]:
    """Remove these entries RUNNING and add new ones for a transaction; return their ids in order."""
    rows = Jsonb([entry.as_dict() for entry in begun])
    given = {
        "ended": list(ended), "begun": rows, "transaction_id": str(transaction_id) if transaction_id else None,
        "orphaned": ProcessEnded.code,
    }  # fmt: skip
    return [id for (id,) in conn.execute(_SQL["exchange_running"], given)]


def remove_running(conn: Connection, ids: Sequence[int]) -> None:
    """Remove entries RUNNING, also those that another process has marked as failed."""
    conn.execute(_SQL["remove_running"], (list(ids), ProcessEnded.code))


def fail_orphans(conn: Connection) -> int:
    """Remove or fail the entries RUNNING whose transactions have ended, since their processes died.

    Return how many failed.
    """
    with conn.transaction():
        orphans = conn.execute(_SQL["orphans"]).fetchall()
        completed = [id for id, *_, is_completed in orphans if is_completed]
        if completed:
            remove_running(conn, completed)
        failed = [orphan for orphan in orphans if not orphan[-1]]
        for id, schema, name, action, initiated_by, _ in failed:
            error = ProcessEnded.while_refreshing(name)
            conn.execute(_SQL["fail"], (error.code, Jsonb(error.as_dict()), id))
            notifications.alert(
                conn, "refresh_failed", stream_table=quoted(schema, name), action=action,
                initiated_by=initiated_by, code=error.code, message=error.message, detail=error.detail,
            )  # fmt: skip
    return len(failed)


def prune(conn: Connection, retention: timedelta) -> int:
    """Remove entries older than this, except the last one of each stream table.

    Return how many were removed.
    """
    total = removed = prune_some(conn, retention)
    while removed == PRUNED_AT_ONCE:
        removed = prune_some(conn, retention)
        total += removed
    return total


def prune_some(conn: Connection, retention: timedelta) -> int:
    """Remove at most PRUNED_AT_ONCE of these entries, the oldest."""
    return conn.execute(_SQL["prune"], (retention, PRUNED_AT_ONCE)).rowcount


def recent(conn: Connection, stream_table_id: int, n: int = 20) -> list[HistoryEntry]:
    """Return the last n entries of a stream table, newest first."""
    return [_entry(row) for row in conn.execute(_SQL["recent"], (stream_table_id, n))]


def _entry(row: tuple[Any, ...]) -> HistoryEntry:
    facts = list(row)
    facts[8] = Snapshot.parse(row[8]) if row[8] else None
    return HistoryEntry(*facts)


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None
