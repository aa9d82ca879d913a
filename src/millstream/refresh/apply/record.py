"""Record a refresh: the new frontier, and a line in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from millstream.catalog import history, stream_tables
from millstream.catalog.history import HistoryEntry, Initiator
from millstream.catalog.stream_tables import Advance
from millstream.frontier.snapshot import Snapshot
from millstream.observe.failpoint import failpoint
from millstream.postgres import notifications
from millstream.postgres.connection import Connection
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job, relids_read
from millstream.refresh.report import RefreshReport


def record(conn: Connection, now: Cut, job: Job, report: RefreshReport) -> RefreshReport:
    """Record frontier and history, in the transaction of the rows; return the report with its data
    timestamp.
    """
    to = Advance(str(report.frontier), now.taken_at, report.action, report.reason)
    moments = stream_tables.advance(conn, [job.table.id], to)
    dated = replace(report, data_timestamp=moments[job.table.id])
    history.add(conn, _entry(job, dated, now.taken_at))
    _announce(conn, job, dated)
    failpoint("frontier_advanced")
    return dated


def record_idle(
    conn: Connection, now: Cut, jobs: Sequence[Job], initiated_by: Initiator
) -> dict[int, RefreshReport]:
    """Record that nothing has changed, in one statement for all, and return the reports.

    Refreshes by the scheduler are not written into the history: there would be one each second for
    each stream table.
    """
    by_frontier = dict[Snapshot, list[Job]]()
    for job in jobs:
        by_frontier.setdefault(now.frontier(relids_read(job)), []).append(job)
    reports = dict[int, RefreshReport]()
    for frontier, idle in by_frontier.items():
        is_counted = initiated_by == "SCHEDULER"
        to = Advance(str(frontier), now.taken_at, "NO_DATA", "NO_CHANGE", is_counted)
        moments = stream_tables.advance(conn, [job.table.id for job in idle], to)
        reports |= {
            job.table.id: _idle(now, job, initiated_by, frontier, moments[job.table.id])
            for job in idle
        }
    if jobs and initiated_by != "SCHEDULER":
        history.add_all(conn, [_entry(job, reports[job.table.id], now.taken_at) for job in jobs])
    for job in jobs:
        _announce(conn, job, reports[job.table.id])
    return reports


def _announce(conn: Connection, job: Job, report: RefreshReport) -> None:
    """Send an alert if a refresh has changed rows, or is the first that succeeded after failures."""
    table = job.table
    had_failed = bool(table.consecutive_errors or table.transient_errors)
    if report.rows_changed or had_failed:
        notifications.alert(
            conn, "refresh_completed", stream_table=table.qualified, action=report.action, reason=report.reason,
            initiated_by=report.initiated_by, rows_inserted=report.rows_inserted, rows_updated=report.rows_updated,
            rows_deleted=report.rows_deleted, data_timestamp=report.data_timestamp.isoformat(),
            duration_ms=round(report.duration_ms, 3), had_failed=had_failed,
        )  # fmt: skip
    if table.status == "ERROR":
        notifications.alert(
            conn, "resumed", stream_table=table.qualified, former_status=table.status, by="refresh"
        )


def _idle(
    now: Cut, job: Job, initiated_by: Initiator, frontier: Snapshot, moment: datetime
) -> RefreshReport:
    """Return the report where nothing has changed."""
    return RefreshReport(
        job.table.name, "NO_DATA", "NO_CHANGE", moment, frontier,
        initiated_by=initiator(job, initiated_by), held_back_by=now.behind.get(job.table.id, ()),
    )  # fmt: skip


def initiator(job: Job, initiated_by: Initiator) -> Initiator:
    """Return who initiated a refresh.

    What a new stream table reads is refreshed with it, but is not initial.
    """
    return "MANUAL" if initiated_by == "INITIAL" and job.table.frontier else initiated_by


def _entry(job: Job, report: RefreshReport, started: datetime) -> HistoryEntry:
    return HistoryEntry(
        stream_table_id=job.table.id, action=report.action, reason=report.reason, status="COMPLETED",
        initiated_by=report.initiated_by, started_at=started, finished_at=datetime.now(UTC),
        data_timestamp=report.data_timestamp, frontier=report.frontier,
        rows_read=report.rows_read, rows_inserted=report.rows_inserted,
        rows_updated=report.rows_updated, rows_deleted=report.rows_deleted, spark_jobs=report.spark_jobs,
        inputs=[one.as_dict() for one in report.inputs], phases=dict(report.phases),
    )  # fmt: skip
