"""One round: refresh several stream tables, cut by cut, and record the outcome of each refresh.

    plan the jobs -> choose the cuts -> for each cut: refresh, repair gaps, try again ->
    record, prune

An error of one stream table does not stop the others. If a cut fails as a whole, each half of it is
refreshed in a cut of its own, and so on, until the stream table that causes the error is alone in
its cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

import psycopg

from millstream.capture.buffer import prune
from millstream.capture.transition import transitions
from millstream.catalog.history import Initiator
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import Conflict, JavaEnded, LockTableFull, MillstreamError
from millstream.observe import log
from millstream.observe.failpoint import failpoint
from millstream.refresh.batches import Graph
from millstream.refresh.job import Gap, Job, Outcome, Postponed, Unplanned, relids_read
from millstream.refresh.report import RefreshReport
from millstream.scheduler.context import SchedulerContext
from millstream.scheduler.cuts import choose_cuts, refuse_too_large, upstreams_first
from millstream.scheduler.outcomes import record_failure, record_interrupt
from millstream.scheduler.repair import job_of, repair

TRIES = 5
# After one of these errors a job is refreshed again at once.
TRY_AGAIN = (Conflict, Postponed, JavaEnded, *transitions.LOST)
# Errors of a whole cut, of which one stream table may be the cause.
CUT_ERRORS = (Conflict, LockTableFull)

Done: TypeAlias = dict[int, RefreshReport | MillstreamError]
"""How refreshes ended, by id of the stream table."""


def refresh_tables(
    context: SchedulerContext,
    tables: Sequence[StreamTable],
    initiated_by: Initiator,
    *,
    full: frozenset[int] = frozenset(),
) -> list[RefreshReport | MillstreamError]:
    """Refresh these stream tables and return the outcomes; recompute those whose ids are in `full`."""
    done = Done()
    started_at = datetime.now(UTC)
    try:
        jobs, failed = _separate(_plan_jobs(context, tables, full))
        done |= failed
        chosen = choose_cuts(context, jobs)
        for graphs in chosen.cuts:
            done |= _refresh_graphs(context, graphs, initiated_by, done)
    except KeyboardInterrupt:
        record_interrupt(
            context, [table for table in tables if table.id not in done], initiated_by, started_at
        )
        raise
    except BaseException:
        context.journal.forget()
        raise
    done |= refuse_too_large(context, chosen.too_large)
    _record(context, tables, done, initiated_by, started_at)
    _prune(context, [job for job in jobs if _has_changed(done[job.table.id])])
    return [done[table.id] for table in tables]


def _plan_jobs(
    context: SchedulerContext, tables: Sequence[StreamTable], full: frozenset[int]
) -> dict[int, Job | MillstreamError]:
    unplanned = context.unplanned([table for table in tables if table.id not in full])
    return {
        table.id: unplanned.get(table.id) or job_of(context, table, full=table.id in full)
        for table in tables
    }


def _separate(planned: Mapping[int, Job | MillstreamError]) -> tuple[list[Job], Done]:
    """Return the jobs, and the errors of the stream tables without one."""
    jobs = [job for job in planned.values() if isinstance(job, Job)]
    return jobs, {
        id_: error for id_, error in planned.items() if isinstance(error, MillstreamError)
    }


def _refresh_graphs(
    context: SchedulerContext, graphs: Sequence[Graph], initiated_by: Initiator, known: Done
) -> Done:
    """Refresh graphs in one cut; if it fails as a whole, refresh each half of them in a cut of its
    own.

    `known` are the outcomes of other stream tables: the report of a reader of a failed one says why
    it is behind.
    """
    done = _refresh_cut(context, [job for graph in graphs for job in graph], initiated_by, known)
    failed = [
        graph
        for graph in graphs
        if any(isinstance(done[job.table.id], CUT_ERRORS) for job in graph)
    ]
    if len(graphs) > 1 and failed:
        log.warning("cut divided", graphs=len(failed))
        half = (len(failed) + 1) // 2
        for part in (failed[:half], failed[half:]):
            done |= _refresh_graphs(context, part, initiated_by, known) if part else {}
    return done


def _refresh_cut(
    context: SchedulerContext, jobs: Sequence[Job], initiated_by: Initiator, known: Done
) -> Done:
    """Refresh jobs in one cut; repair those that could not be refreshed, and try again."""
    done = Done()
    waiting = list(jobs)
    java_ended = set[int]()
    for _ in range(TRIES):
        refresher = context.refresher({**known, **done})
        outcomes = list(zip(waiting, refresher.refresh(waiting, initiated_by), strict=True))
        for job, outcome in outcomes:
            if not isinstance(outcome, Gap | Postponed | Unplanned):
                done[job.table.id] = _summed(done.get(job.table.id), outcome)
        # If Java has ended twice during a job, the job may be the cause, and is not tried again.
        given_up = java_ended & _ids(outcomes, JavaEnded)
        java_ended |= _ids(outcomes, JavaEnded)
        again = [
            job
            for job, outcome in outcomes
            if isinstance(outcome, TRY_AGAIN) and job.table.id not in given_up
        ]
        _leave_lost_wal(context, outcomes)
        prepared, failed = _separate(_prepare(context, outcomes))
        done |= failed
        waiting = upstreams_first([*again, *prepared])
        if not waiting:
            return done
        # The next try has a later cut, so refresh their upstreams again there.
        waiting = upstreams_first([*_refreshed_upstreams(jobs, waiting, done), *waiting])
    unfinished = {
        job.table.id: Conflict.on(job.table.name, "Its sources keep changing.") for job in waiting
    }
    return unfinished | done


def _refreshed_upstreams(jobs: Sequence[Job], waiting: Sequence[Job], done: Done) -> list[Job]:
    """Return the jobs that are already refreshed and that a waiting job reads, to any depth."""
    by_id = {job.table.id: job for job in jobs if isinstance(done.get(job.table.id), RefreshReport)}
    seen = {job.table.id for job in waiting}
    found, looking = list[Job](), list(waiting)
    while looking:
        new = [by_id[id] for id in looking.pop().upstreams - seen if id in by_id]
        seen |= {job.table.id for job in new}
        found += [replace(job, full=False, recompute_reason="") for job in new]
        looking += new
    return found


def _summed(
    former: RefreshReport | MillstreamError | None, outcome: RefreshReport | MillstreamError
) -> RefreshReport | MillstreamError:
    """Return the outcome of two refreshes in this round: if the second found no changes, the first
    report with the second's timestamp.
    """
    if (
        isinstance(former, RefreshReport)
        and isinstance(outcome, RefreshReport)
        and outcome.action == "NO_DATA"
    ):
        return replace(former, data_timestamp=outcome.data_timestamp, frontier=outcome.frontier)
    return outcome


def _ids(outcomes: Iterable[tuple[Job, Outcome]], kind: type[MillstreamError]) -> set[int]:
    return {job.table.id for job, outcome in outcomes if isinstance(outcome, kind)}


def _leave_lost_wal(context: SchedulerContext, outcomes: Iterable[tuple[Job, Outcome]]) -> None:
    """Return all sources to triggers if WAL can no longer be read."""
    for _, outcome in outcomes:
        if isinstance(outcome, transitions.LOST):
            transitions.fall_back(context, outcome.detail)
            return


def _prepare(
    context: SchedulerContext, outcomes: Sequence[tuple[Job, Outcome]]
) -> dict[int, Job | MillstreamError]:
    """Repair the jobs with gaps and plan those without a plan; return their new jobs or errors."""
    gaps = [(job, outcome) for job, outcome in outcomes if isinstance(outcome, Gap)]
    prepared = repair(context, gaps) if gaps else {}
    for job, outcome in outcomes:
        if isinstance(outcome, Unplanned):
            prepared[job.table.id] = job_of(context, job.table, full=False)
    return prepared


def _record(
    context: SchedulerContext,
    tables: Sequence[StreamTable],
    done: Done,
    initiated_by: Initiator,
    started_at: datetime,
) -> None:
    for table in tables:
        outcome = done[table.id]
        if isinstance(outcome, RefreshReport):
            # At INFO, a thousand idle stream tables would fill the log every second.
            note = log.debug if outcome.action == "NO_DATA" else log.info
            note(
                "refreshed", table=outcome.name, action=outcome.action, rows_read=outcome.rows_read
            )
        else:
            record_failure(context, table, outcome, initiated_by, started_at)


def _has_changed(outcome: RefreshReport | MillstreamError) -> bool:
    return isinstance(outcome, RefreshReport) and outcome.action != "NO_DATA"


def _prune(context: SchedulerContext, changed: Sequence[Job]) -> None:
    """Remove the changes that all readers have consumed; if a buffer is locked, leave it to the
    next round.
    """
    relids = sorted({relid for job in changed for relid in relids_read(job)})
    if relids:
        try:
            prune.prune(context.conn, relids)
        except psycopg.errors.LockNotAvailable:
            log.info("prune postponed", sources=relids)
    failpoint("pruned")
