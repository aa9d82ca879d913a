"""The verb refresh: one stream table, several, or all that are due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import psycopg

from millstream.capture import prune, trigger
from millstream.catalog import history, relations, sources, stream_tables
from millstream.catalog.history import HistoryEntry, Initiator
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import Conflict, MillstreamError, QueryError, SourceChanged
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
    return _reports(_several(app, [app.named(name)], initiated_by, full=full))[0]


@verb
def refresh_all(app: App) -> list[RefreshReport]:
    """Refresh every active stream table, at one cut."""
    return _reports(_several(app, _active(app), "MANUAL"))


@verb
def tick(app: App) -> list[RefreshReport]:
    """One tick: refresh whatever is due, at one cut. A table that fails is noted and does not stop the others."""
    now = datetime.now(UTC)
    due = [table for table in _active(app) if Cadence.parse(table.schedule).due(table.data_timestamp, now)]
    return [outcome for outcome in _several(app, due, "SCHEDULER") if isinstance(outcome, RefreshReport)]


def _reports(outcomes: Sequence[RefreshReport | MillstreamError]) -> list[RefreshReport]:
    """All reports, or the first error."""
    for outcome in outcomes:
        if isinstance(outcome, MillstreamError):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, RefreshReport)]


def _active(app: App) -> list[StreamTable]:
    return [table for table in stream_tables.every(app.conn) if table.status in ("ACTIVE", "INITIALIZING", "ERROR")]


def _several(
    app: App, tables: Sequence[StreamTable], initiated_by: Initiator, *, full: bool = False
) -> list[RefreshReport | MillstreamError]:
    """Refresh these; one that can no longer be planned has an error and does not stop the others."""
    unplanned, jobs = dict[int, MillstreamError](), list[Job]()
    for table in tables:
        try:
            jobs.append(app.job(table, full=full))
        except QueryError as error:
            unplanned[table.id] = SourceChanged.shape(table.name, f"Its query no longer holds: {error.message}.")
            _record_failure(app, table, unplanned[table.id])
    done = _by_id(jobs, _refresh(app, jobs, initiated_by))
    return [unplanned.get(table.id) or done[table.id] for table in tables]


def _refresh(app: App, jobs: Sequence[Job], initiated_by: Initiator) -> list[RefreshReport | MillstreamError]:
    """Refresh, repairing capture and trying again where that helps; then record failures and prune."""
    done = dict[int, RefreshReport | MillstreamError]()
    for together in _cuts(app, jobs):
        done |= _in_one_cut(app, together, initiated_by)
    outcomes = [done[job.table.id] for job in jobs]
    for job, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, RefreshReport):
            log.info("refreshed", table=outcome.name, action=outcome.action, rows_read=outcome.rows_read)
        else:
            _record_failure(app, job.table, outcome)
    _prune(app, outcomes, jobs)
    return outcomes


def _cuts(app: App, jobs: Sequence[Job]) -> list[list[Job]]:
    """Which jobs share a cut: all but those on whose table there are triggers, of the user's or of a foreign key.

    Such a trigger may write to a source, in the cut's own transaction; whoever reads the source after it in that cut
    would see the rows now and again in the next slice. So it comes last, alone.
    """
    relids = [job.table.relid for job in jobs]
    query = "SELECT DISTINCT tgrelid::int8 FROM pg_trigger WHERE tgrelid = ANY(%s::oid[])"
    triggered = {relid for (relid,) in app.conn.execute(query, ([relid for relid in relids if relid],))}
    plain = [job for job in jobs if job.table.relid not in triggered]
    return ([plain] if plain else []) + [[job] for job in jobs if job.table.relid in triggered]


def _in_one_cut(app: App, jobs: Sequence[Job], initiated_by: Initiator) -> dict[int, RefreshReport | MillstreamError]:
    done = dict[int, RefreshReport | MillstreamError]()
    waiting = list(jobs)
    for _ in range(_TRIES):
        try:
            done |= _by_id(waiting, app.refresher().refresh(waiting, initiated_by))
        except Gap as gap:
            log.warning("capture repaired", sources=gap.relids, what=str(gap))
            _repair(app, gap)
            for job in waiting:
                app.forget(job.table.id)
            waiting = [app.job(stream_tables.get(app.conn, job.table.id), full=job.full) for job in waiting]
            continue
        waiting = [job for job in waiting if isinstance(done[job.table.id], Conflict)]
        if not waiting:
            break
    return {
        job.table.id: done.get(job.table.id) or Conflict.on(job.table.name, "Its sources keep changing.")
        for job in jobs
    }


def _by_id(
    jobs: Sequence[Job], outcomes: Sequence[RefreshReport | MillstreamError]
) -> dict[int, RefreshReport | MillstreamError]:
    return dict(zip([job.table.id for job in jobs], outcomes, strict=True))


def _repair(app: App, gap: Gap) -> None:
    """Set capture up again; that marks the buffer, so that every reader reinitialises."""
    for relid in gap.relids:
        trigger.install(app.conn, relations.table(app.conn, relid), sources.needed(app.conn, relid))


def _record_failure(app: App, table: StreamTable, error: MillstreamError) -> None:
    log.error("refresh failed", table=table.name, code=error.code, message=error.message)
    if error.retryable:
        return
    stream_tables.record_failure(app.conn, table.id, error)
    now = datetime.now(UTC)
    entry = HistoryEntry(table.id, "SKIP", error.code, "FAILED", "MANUAL", now, finished_at=now, error=error.as_dict())
    history.add(app.conn, entry)


def _prune(app: App, outcomes: Sequence[RefreshReport | MillstreamError], jobs: Sequence[Job]) -> None:
    moved = [
        job for job, o in zip(jobs, outcomes, strict=True) if isinstance(o, RefreshReport) and o.action != "NO_DATA"
    ]
    relids = sorted({one.scan.table.oid for job in moved for one in job.reads()})
    if relids:
        try:
            prune.prune(app.conn, relids)
        except psycopg.errors.LockNotAvailable:
            log.info("prune postponed", sources=relids)
    failpoint("pruned")
