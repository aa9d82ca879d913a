"""Record a refresh: the frontier it came to, and its line in the history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from millstream.catalog import history, stream_tables
from millstream.catalog.history import HistoryEntry, Initiator
from millstream.observe.failpoint import failpoint
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job, reads
from millstream.refresh.report import RefreshReport
from millstream.store.connection import Connection


def record(conn: Connection, now: Cut, job: Job, report: RefreshReport) -> None:
    """Frontier and history, in the transaction of the rows themselves."""
    ids, frontier = [job.table.id], str(report.frontier)
    stream_tables.advance(conn, ids, frontier, now.taken_at, action=report.action, reason=report.reason)
    history.add(conn, _entry(job, report, report.initiated_by, now.taken_at))
    failpoint("frontier_advanced")


def advance_idle(conn: Connection, now: Cut, jobs: Sequence[Job], initiated_by: Initiator) -> None:
    """Where nothing has changed: one statement for all; the scheduler's leave no history."""
    if not jobs:
        return
    by_frontier = dict[str, list[int]]()
    for job in jobs:
        by_frontier.setdefault(str(now.frontier(reads(job))), []).append(job.table.id)
    for frontier, ids in by_frontier.items():
        stream_tables.advance(conn, ids, frontier, now.taken_at, action="NO_DATA", reason="NO_CHANGE")
    if initiated_by != "SCHEDULER":
        idle = [(job, idle_report(now, job, initiated_by)) for job in jobs]
        history.add_all(conn, [_entry(job, report, initiated_by, now.taken_at) for job, report in idle])


def idle_report(now: Cut, job: Job, initiated_by: Initiator) -> RefreshReport:
    """The report where nothing has changed."""
    frontier = now.frontier(reads(job))
    return RefreshReport(job.table.name, "NO_DATA", "NO_CHANGE", now.taken_at, frontier, initiated_by=initiated_by)


def _entry(job: Job, report: RefreshReport, initiated_by: Initiator, started: datetime) -> HistoryEntry:
    return HistoryEntry(
        stream_table_id=job.table.id, action=report.action, reason=report.reason, status="COMPLETED",
        initiated_by=initiated_by, started_at=started, finished_at=datetime.now(UTC),
        data_timestamp=report.data_timestamp, frontier=report.frontier,
        rows_read=report.rows_read, rows_inserted=report.rows_inserted,
        rows_updated=report.rows_updated, rows_deleted=report.rows_deleted, spark_jobs=report.spark_jobs,
        inputs=[one.as_dict() for one in report.inputs], phases=dict(report.phases),
    )  # fmt: skip
