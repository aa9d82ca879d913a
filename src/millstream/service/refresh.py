"""The verb refresh: one stream table, several, or all that are due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import psycopg

from millstream.capture import prune, trigger
from millstream.catalog import history, relations, sources, stream_tables
from millstream.catalog.history import HistoryEntry, Initiator
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import Conflict, MillstreamError, SourceChanged
from millstream.observe import log
from millstream.observe.failpoint import failpoint
from millstream.refresh.report import RefreshReport
from millstream.refresh.run import Gap, Job
from millstream.schedule.cadence import Cadence
from millstream.service.app import App
from millstream.service.verb import verb

_TRIES = 5


@verb
def refresh(app: App, name: str, *, full: bool = False, initiated_by: Initiator = "MANUAL") -> RefreshReport:
    """Refresh one stream table now."""
    outcome = _refresh(app, [app.job(app.named(name), full=full)], initiated_by)[0]
    if isinstance(outcome, MillstreamError):
        raise outcome
    return outcome


@verb
def refresh_all(app: App) -> list[RefreshReport]:
    """Refresh every active stream table, at one cut."""
    return _several(app, _active(app), "MANUAL")


@verb
def tick(app: App) -> list[RefreshReport]:
    """One tick: refresh whatever is due, at one cut. A table that fails is noted and does not stop the others."""
    now = datetime.now(UTC)
    due = [table for table in _active(app) if Cadence.parse(table.schedule).due(table.data_timestamp, now)]
    outcomes = _refresh(app, [app.job(table) for table in due], "SCHEDULER")
    return [outcome for outcome in outcomes if isinstance(outcome, RefreshReport)]


def _active(app: App) -> list[StreamTable]:
    return [table for table in stream_tables.every(app.conn) if table.status in ("ACTIVE", "INITIALIZING", "ERROR")]


def _several(app: App, tables: Sequence[StreamTable], initiated_by: Initiator) -> list[RefreshReport]:
    outcomes = _refresh(app, [app.job(table) for table in tables], initiated_by)
    for outcome in outcomes:
        if isinstance(outcome, MillstreamError):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, RefreshReport)]


def _refresh(app: App, jobs: Sequence[Job], initiated_by: Initiator) -> list[RefreshReport | MillstreamError]:
    """Refresh, repairing capture and trying again where that helps; then record failures and prune."""
    done = dict[int, RefreshReport | MillstreamError]()
    waiting = list(jobs)
    for _ in range(_TRIES):
        try:
            done |= _by_id(waiting, app.refresher().refresh(waiting, initiated_by))
        except Gap as gap:
            log.warning("capture repaired", sources=gap.relids, what=str(gap))
            _repair(app, gap)
            waiting = [app.job(stream_tables.get(app.conn, job.table.id), full=job.full) for job in waiting]
            continue
        waiting = [job for job in waiting if isinstance(done[job.table.id], Conflict)]
        if not waiting:
            break
    outcomes = [done.get(job.table.id) or Conflict.on(job.table.name, "Its sources keep changing.") for job in jobs]
    _record_failures(app, jobs, outcomes)
    _prune(app, outcomes, jobs)
    return outcomes


def _by_id(
    jobs: Sequence[Job], outcomes: Sequence[RefreshReport | MillstreamError]
) -> dict[int, RefreshReport | MillstreamError]:
    return dict(zip([job.table.id for job in jobs], outcomes, strict=True))


def _repair(app: App, gap: Gap) -> None:
    """Set capture up again; that marks the buffer, so that every reader reinitialises."""
    for relid in gap.relids:
        try:
            table = relations.table(app.conn, relid)
        except MillstreamError as error:
            raise SourceChanged.shape(str(relid), "The table was dropped.") from error
        for name in sources.needed(app.conn, relid):
            if table.column(name) is None:
                raise SourceChanged.shape(
                    f"{table.schema}.{table.name}", f'Its column "{name}" was dropped or renamed.'
                )
        trigger.install(app.conn, table, sources.needed(app.conn, relid))


def _record_failures(app: App, jobs: Sequence[Job], outcomes: Sequence[RefreshReport | MillstreamError]) -> None:
    for job, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, RefreshReport):
            log.info("refreshed", table=outcome.name, action=outcome.action, rows_read=outcome.rows_read)
            continue
        log.error("refresh failed", table=job.table.name, code=outcome.code, message=outcome.message)
        if outcome.retryable:
            continue
        stream_tables.record_failure(app.conn, job.table.id, outcome)
        now = datetime.now(UTC)
        history.add(
            app.conn,
            HistoryEntry(
                job.table.id, "SKIP", outcome.code, "FAILED", "MANUAL", now, finished_at=now, error=outcome.as_dict()
            ),
        )


def _prune(app: App, outcomes: Sequence[RefreshReport | MillstreamError], jobs: Sequence[Job]) -> None:
    moved = [
        job for job, o in zip(jobs, outcomes, strict=True) if isinstance(o, RefreshReport) and o.action != "NO_DATA"
    ]
    relids = sorted({one.scan.table.oid for job in moved for one in job.block.inputs()})
    if relids:
        try:
            prune.prune(app.conn, relids)
        except psycopg.errors.LockNotAvailable:
            log.info("prune postponed", sources=relids)
    failpoint("pruned")
