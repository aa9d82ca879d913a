"""Repair what prevents a stream table from being refreshed.

    stale plan          plan the query again from its text; names refer to the tables that have them now
    other sources       record the sources and columns that the new plan reads
    gap in capture      set the triggers up again; this marks the buffer, so that every reader reinitialises
    table renamed       record its new name, if no other table has the former one
    guard missing       restore the trigger that refuses direct writes, and recompute the rows

Each source is repaired separately: if one cannot be repaired, its readers get the error, and the
others are refreshed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import psycopg

from millstream.capture.transition import transitions
from millstream.capture.trigger import triggers
from millstream.catalog import sources, stream_tables
from millstream.catalog.stream_tables import StreamTable
from millstream.catalog.target import targets, write_guard
from millstream.errors import (
    Busy,
    Cycle,
    InternalError,
    LockNotHad,
    MillstreamError,
    QueryError,
    SourceChanged,
    TargetMoved,
)
from millstream.observe import log
from millstream.postgres import fence, notifications, relations
from millstream.postgres.failures import failure_from
from millstream.postgres.relations import Name
from millstream.postgres.table_locks import Patience, under_lock
from millstream.refresh.job import Gap, Job, relids_read
from millstream.scheduler import dependencies
from millstream.scheduler.context import SchedulerContext

# Short, since other stream tables wait meanwhile. A lock that is not granted in time is requested
# again at the next tick.
HASTY = Patience(seconds=2.0)


def job_of(context: SchedulerContext, table: StreamTable, *, full: bool) -> Job | MillstreamError:
    """Return the job of a stream table, or the error if its query can no longer be planned."""
    try:
        return context.job(table, full=full)
    except Cycle as error:
        return error
    except QueryError as error:
        return SourceChanged.query(table.name, f"{error.message[:1].upper()}{error.message[1:]}.")
    except MillstreamError as error:
        return error
    except psycopg.Error as error:
        if context.conn.closed:
            raise
        return failure_from(table.name, error)
    except Exception as error:
        # A query that can no longer be planned must not prevent the refresh of others.
        internal = InternalError.of(error)
        internal.__cause__ = error
        return internal


def repair(
    context: SchedulerContext, gaps: Sequence[tuple[Job, Gap]]
) -> dict[int, Job | MillstreamError]:
    """Repair the given gaps; return, by id of a stream table, its new job or the error that
    remains.
    """
    log.warning("repairing", what=sorted({gap.what for _, gap in gaps}))
    found = {job.table.id: _plan_again(context, job, gap) for job, gap in gaps}
    asked = {
        relid
        for job, gap in gaps
        for relid in (*gap.relids, *_new_sources(job, found[job.table.id]))
    }
    read = {relid for job in found.values() if isinstance(job, Job) for relid in relids_read(job)}
    errors_by_source = {
        relid: error
        for relid in sorted(asked & read)
        if (error := _restore_capture(context, relid))
    }
    _release_unread(context)
    return {id: _unless_unrepaired(one, errors_by_source) for id, one in found.items()}


def _plan_again(context: SchedulerContext, job: Job, gap: Gap) -> Job | MillstreamError:
    if gap.guard:
        return _restore_guard(context, job)
    context.forget(job.table.id)
    try:
        if gap.is_renamed:
            _follow_target(context, job)
        again = job_of(context, stream_tables.get(context.conn, job.table.id), full=job.full)
        if isinstance(again, Job):
            _record_sources(context, again.table)
    except MillstreamError as error:
        return error
    return again


def _follow_target(context: SchedulerContext, job: Job) -> None:
    """Record the new name of a stream table's table; raise if it is ambiguous."""
    id, name = job.table.id, job.table.name
    with context.mutex.stream_tables([id]) as free:
        if not free:
            raise Busy.working_on(name, context.mutex.holders([id]).get(id))
        if not targets.follow(context.conn, id):
            raise TargetMoved.renamed(name)
    log.warning(
        "stream table renamed by a user",
        table=name,
        now=stream_tables.get(context.conn, id).qualified,
    )


def _restore_guard(context: SchedulerContext, job: Job) -> Job | MillstreamError:
    """Restore the guard. If it had been removed, rows may have been written, so recompute all of
    them.
    """
    table = job.table
    try:
        if name := targets.ours(context.conn, table.id, table.name):
            under_lock(
                context.conn,
                [name],
                "SHARE ROW EXCLUSIVE",
                partial(_guard, context, table, name),
                HASTY,
            )
    except MillstreamError as error:
        return error
    was_there = table.is_guarded and not context.settings.allow_direct_writes
    return replace(job, recompute_reason="UNGUARDED") if was_there else job


def _guard(context: SchedulerContext, table: StreamTable, name: Name) -> None:
    """Create or remove the guard, depending on the settings; reset the frontier of a stream table
    whose guard was missing.
    """
    if context.settings.allow_direct_writes:
        write_guard.remove(context.conn, table.id, name)
        return
    write_guard.put(context.conn, table.id, name)
    if table.is_guarded:
        stream_tables.start_over(context.conn, table.id)


def _record_sources(context: SchedulerContext, table: StreamTable) -> None:
    """Record exactly the sources and columns that the plan reads."""
    read = context.plan(table).sources()
    with context.conn.transaction():
        for relid, (source, columns) in read.items():
            sources.reserve(context.conn, relid, source.schema, source.name)
            sources.add_dependency(context.conn, table.id, relid, columns)
        sources.remove_other_dependencies(context.conn, table.id, list(read))
        dependencies.record(context.conn, table.id, context.plan(table).upstreams)
        fence.hold(context.conn)


def _new_sources(job: Job, again: Job | MillstreamError) -> set[int]:
    return relids_read(again) - relids_read(job) if isinstance(again, Job) else set()


def _restore_capture(context: SchedulerContext, relid: int) -> MillstreamError | None:
    """Set up capture again for the columns that still exist; planning reports a missing column to
    its readers.
    """
    try:
        table = relations.table(context.conn, relid)
        there = {column.name for column in table.columns}
        needed = [name for name in sources.needed_columns(context.conn, relid) if name in there]
        former = sources.get(context.conn, relid)
        now = triggers.install(context.conn, table, needed, patience=HASTY)
        if former is not None and former.mode != now.mode:
            transitions.tell(context, former, now.mode)
            notifications.alert(
                context.conn, "reinitialize_needed", source=now.qualified, reason=now.reason
            )
    except MillstreamError as error:
        return error
    return None


def _release_unread(context: SchedulerContext) -> None:
    """End the capture of sources that were dropped, or that no stream table reads any longer."""
    sources.remove_dependencies_on_dropped(context.conn)
    for source in sources.unread(context.conn):
        # The source is in use: the next repair removes them.
        with suppress(LockNotHad):
            triggers.remove(context.conn, source.relid, patience=HASTY)


def _unless_unrepaired(
    one: Job | MillstreamError, errors_by_source: dict[int, MillstreamError]
) -> Job | MillstreamError:
    if isinstance(one, MillstreamError):
        return one
    return next(
        (
            errors_by_source[relid]
            for relid in sorted(relids_read(one))
            if relid in errors_by_source
        ),
        one,
    )
