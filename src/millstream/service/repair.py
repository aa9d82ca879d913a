"""Mend what stands between a stream table and its refresh.

A plan that is stale is made again, from the query's text: a table that was swapped for another of its name is that
other one from then on. Sources are recorded as the new plan reads them, and capture is set up where it has a gap,
which marks the buffer, so that every reader reinitialises. Each source by itself: the readers of one that cannot be
mended are told so, the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import psycopg

from millstream.capture.transition import transitions
from millstream.capture.trigger import triggers
from millstream.catalog import sources, stream_tables, targets, write_guard
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import Cycle, InternalError, LockNotHad, MillstreamError, QueryError, SourceChanged
from millstream.observe import log
from millstream.postgres import notifications, relations
from millstream.postgres.failures import failure_from
from millstream.postgres.relations import Name
from millstream.postgres.table_locks import Patience, under_lock
from millstream.refresh.job import Gap, Job, reads
from millstream.scheduler import dependencies
from millstream.service.app import App

# Other stream tables wait meanwhile; what was not to be had now is tried again at the next tick.
HASTY = Patience(seconds=2.0)


def job_of(app: App, table: StreamTable, *, full: bool) -> Job | MillstreamError:
    """What is to be done for a table, or why its query no longer holds."""
    try:
        return app.job(table, full=full)
    except Cycle as error:
        return error
    except QueryError as error:
        return SourceChanged.query(table.name, f"{error.message[:1].upper()}{error.message[1:]}.")
    except MillstreamError as error:
        return error
    except psycopg.Error as error:
        if app.conn.closed:
            raise
        return failure_from(table.name, error)
    except Exception as error:
        # A query that cannot be planned any more must not keep the others from being refreshed.
        internal = InternalError.of(error)
        internal.__cause__ = error
        return internal


def repair(app: App, gaps: Sequence[tuple[Job, Gap]]) -> dict[int, Job | MillstreamError]:
    """By id of a stream table: its job anew, or why it cannot be."""
    log.warning("mending", what=sorted({gap.what for _, gap in gaps}))
    found = {job.table.id: _planned_again(app, job, gap) for job, gap in gaps}
    asked = {relid for job, gap in gaps for relid in (*gap.relids, *_added(job, found[job.table.id]))}
    read = {relid for job in found.values() if isinstance(job, Job) for relid in reads(job)}
    troubles = {relid: error for relid in sorted(asked & read) if (error := _captured_again(app, relid))}
    _release_unread(app)
    return {id: _unless_troubled(one, troubles) for id, one in found.items()}


def _planned_again(app: App, job: Job, gap: Gap) -> Job | MillstreamError:
    if gap.guard:
        return _guarded_again(app, job)
    app.forget(job.table.id)
    try:
        again = job_of(app, stream_tables.get(app.conn, job.table.id), full=job.full)
        if isinstance(again, Job):
            _record_sources(app, again.table)
    except MillstreamError as error:
        return error
    return again


def _guarded_again(app: App, job: Job) -> Job | MillstreamError:
    """Put the guard back. Where it had been there, others may have written meanwhile: the rows are computed whole."""
    table = job.table
    try:
        if name := targets.ours(app.conn, table.id, table.name):
            under_lock(app.conn, [name], "SHARE ROW EXCLUSIVE", partial(_guard, app, table, name), HASTY)
    except MillstreamError as error:
        return error
    was_there = table.is_guarded and not app.settings.allow_direct_writes
    return replace(job, whole="UNGUARDED") if was_there else job


def _guard(app: App, table: StreamTable, name: Name) -> None:
    """Put or remove the guard, as the settings say, and forget how far a table has come that was without its own."""
    if app.settings.allow_direct_writes:
        write_guard.remove(app.conn, table.id, name)
        return
    write_guard.put(app.conn, table.id, name)
    if table.is_guarded:
        stream_tables.start_over(app.conn, table.id)


def _record_sources(app: App, table: StreamTable) -> None:
    """The sources and columns that the plan reads, and no others."""
    read = app.plan(table).sources()
    with app.conn.transaction():
        for relid, (source, columns) in read.items():
            sources.reserve(app.conn, relid, source.schema, source.name)
            sources.depend(app.conn, table.id, relid, columns)
        sources.depend_on_no_other(app.conn, table.id, list(read))
        dependencies.record(app.conn, table.id, app.plan(table).upstreams)


def _added(job: Job, again: Job | MillstreamError) -> set[int]:
    return reads(again) - reads(job) if isinstance(again, Job) else set()


def _captured_again(app: App, relid: int) -> MillstreamError | None:
    """Set capture up again, of the columns that are there: a reader of one that is gone learns it from its own plan."""
    try:
        table = relations.table(app.conn, relid)
        there = {column.name for column in table.columns}
        needed = [name for name in sources.needed(app.conn, relid) if name in there]
        former = sources.get(app.conn, relid)
        now = triggers.install(app.conn, table, needed, patience=HASTY)
        if former is not None and former.mode != now.mode:
            transitions.tell(app, former, now.mode)
            notifications.alert(app.conn, "reinitialize_needed", source=now.qualified, reason=now.reason)
    except MillstreamError as error:
        return error
    return None


def _release_unread(app: App) -> None:
    for source in sources.unread(app.conn):
        with suppress(LockNotHad):
            triggers.remove(app.conn, source.relid, patience=HASTY)


def _unless_troubled(one: Job | MillstreamError, troubles: dict[int, MillstreamError]) -> Job | MillstreamError:
    if isinstance(one, MillstreamError):
        return one
    return next((troubles[relid] for relid in sorted(reads(one)) if relid in troubles), one)
