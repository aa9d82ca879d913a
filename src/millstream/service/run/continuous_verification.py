"""Continuous verification: in idle time, compare one stream table after the other with its query.

`verify_budget` is the share of time that it may take: after a comparison of d seconds the next one
waits for d / budget - d. The stream table whose last comparison is longest ago comes first. Manual
and suspended ones are left out, as are those being refreshed; during a comparison, the graph of the
stream table waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from millstream.catalog import stream_tables
from millstream.catalog.stream_tables import StreamTable
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.scheduler.cadence import Cadence
from millstream.scheduler.round import refresh_tables
from millstream.service.app import App
from millstream.service.refresh import upstreams_of
from millstream.service.verb import verb
from millstream.service.verification.verification import Verification
from millstream.service.verification.verify import compared, record

# The least seconds between two comparisons.
SHORTEST_PAUSE = 1.0
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def pause_after(seconds: float, budget: float) -> float:
    """Return how long to wait after a comparison that took so long.

    >>> pause_after(0.5, 0.01), pause_after(0.0001, 0.5), pause_after(3.0, 1.0)
    (49.5, 1.0, 1.0)
    """
    return max(seconds / budget - seconds, SHORTEST_PAUSE)


def next_to_verify(tables: Iterable[StreamTable], running: Iterable[int]) -> StreamTable | None:
    """Return the stream table whose last comparison is longest ago, of those that can be compared
    now.
    """
    busy = set(running)
    ready = [table for table in tables if table.id not in busy and _is_verifiable(table)]
    return min(ready, key=lambda table: (table.last_verified_at or _NEVER, table.id), default=None)


def _is_verifiable(table: StreamTable) -> bool:
    is_kept = Cadence.parse(table.schedule).kind != "manual"
    return (
        is_kept
        and table.status == "ACTIVE"
        and table.frontier is not None
        and not table.failed_tries
    )


@verb
def verify_by_schedule(app: App, id: int) -> None:
    """Compare a stream table with its query in the cut of a refresh, and record the outcome."""
    table = stream_tables.get_all(app.conn, [id]).get(id)
    if table is None or table.status != "ACTIVE":
        return
    # The comparison needs the plan, even if nothing has changed.
    app.plan(table)
    found = list[Verification]()
    former = app.witness

    def witness(now: Cut, job: Job, report: RefreshReport) -> None:
        if former is not None:
            former(now, job, report)
        if job.table.id == id:
            found.append(compared(now.conn, job, report))

    app.witness = witness
    try:
        refresh_tables(app, [*upstreams_of(app, table), table], "SCHEDULER")
    finally:
        app.witness = former
    if found:
        record(app, table, found[-1])
