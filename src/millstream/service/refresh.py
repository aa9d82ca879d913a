"""The verb refresh: one stream table, several, or all that are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import psycopg

from millstream.capture.buffer import prune
from millstream.capture.transition import transitions
from millstream.catalog import history, stream_tables
from millstream.catalog.history import HistoryEntry, Initiator, Status
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import Cancelled, Conflict, JavaEnded, LockTableFull, MillstreamError, NoSuchStreamTable
from millstream.observe import log
from millstream.observe.failpoint import failpoint
from millstream.postgres import lock_table
from millstream.postgres.failures import code_of, transient_trouble
from millstream.refresh.batches import Batches, Graph, batches, graphs
from millstream.refresh.job import Gap, Job, Postponed, Unplanned, reads
from millstream.refresh.report import RefreshReport
from millstream.scheduler.cadence import Cadence
from millstream.scheduler.dependencies import recorded_graph
from millstream.service.app import App
from millstream.service.repair import job_of, repair
from millstream.service.verb import verb

_TRIES = 5
# After these a stream table is tried again at once.
AGAIN = (Conflict, Postponed)
# The states in which a stream table is refreshed without being named.
REFRESHED = ("ACTIVE", "INITIALIZING", "ERROR")


@verb
def refresh(app: App, name: str, *, full: bool = False, initiated_by: Initiator = "MANUAL") -> RefreshReport:
    """Refresh one stream table now, and first, in the same cut, those that it reads, to any depth.

    One of those that is suspended, or fails, is left as it is: the report then says so, and tells the older moment.
    """
    table = app.named(name)
    pulled = _pulled(app, table)
    outcome = _with_upstreams(app, table, pulled, initiated_by, full=full)
    again = _pulled(app, table)
    if {one.id for one in again} - {one.id for one in pulled} and isinstance(outcome, RefreshReport):
        # Its plan was made again on the way, and reads others than before.
        outcome = _with_upstreams(app, table, again, initiated_by, full=full)
    return _reports([outcome])[0]


def _pulled(app: App, table: StreamTable) -> list[StreamTable]:
    """Return the stream tables that it reads and that may be refreshed with it."""
    found = stream_tables.get_all(app.conn, sorted(recorded_graph(app.conn).upstreams(table.id) - {table.id}))
    return [one for one in found.values() if one.status in REFRESHED]


def _with_upstreams(
    app: App, table: StreamTable, pulled: Sequence[StreamTable], initiated_by: Initiator, *, full: bool
) -> RefreshReport | MillstreamError:
    return _several(app, [*pulled, table], initiated_by, full=frozenset({table.id} if full else ()))[-1]


@verb
def refresh_all(app: App) -> list[RefreshReport]:
    """Refresh every active stream table, at one cut."""
    return _reports(_several(app, _active(app), "MANUAL"))


@verb
def tick(app: App) -> list[RefreshReport]:
    """One tick: refresh whatever is due, at one cut. A table that fails is noted and does not stop the others."""
    now = datetime.now(UTC)
    due = [table for table in _active(app) if Cadence.parse(table.schedule).due(table.cut_at, now)]
    outcomes = _several(app, due, "SCHEDULER")
    transitions.advance(app)
    return [outcome for outcome in outcomes if isinstance(outcome, RefreshReport)]


def _reports(outcomes: Sequence[RefreshReport | MillstreamError]) -> list[RefreshReport]:
    """All reports, or the first error."""
    for outcome in outcomes:
        if isinstance(outcome, MillstreamError):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, RefreshReport)]


def _active(app: App) -> list[StreamTable]:
    return [table for table in stream_tables.every(app.conn) if table.status in REFRESHED]


# By id of a stream table.
Done = dict[int, RefreshReport | MillstreamError]


def _several(
    app: App, tables: Sequence[StreamTable], initiated_by: Initiator, *, full: frozenset[int] = frozenset()
) -> list[RefreshReport | MillstreamError]:
    """Refresh these, then record failures and prune; the trouble of one does not stop the others."""
    done = Done()
    try:
        quiet = app.unplanned([table for table in tables if table.id not in full])
        jobs, failed = _sorted(
            {table.id: quiet.get(table.id) or job_of(app, table, full=table.id in full) for table in tables}
        )
        done |= failed
        chosen = _cuts(app, jobs)
        for together in chosen.cuts:
            done |= _in_cuts(app, together, initiated_by, done)
    except KeyboardInterrupt:
        _record_interrupt(app, [table for table in tables if table.id not in done], initiated_by)
        raise
    done |= _refused(app, chosen.too_large)
    for table in tables:
        outcome = done[table.id]
        if isinstance(outcome, RefreshReport):
            log.info("refreshed", table=outcome.name, action=outcome.action, rows_read=outcome.rows_read)
        else:
            _record_failure(app, table, outcome, initiated_by)
    _prune(app, [job for job in jobs if _has_moved(done[job.table.id])])
    return [done[table.id] for table in tables]


def _sorted(found: Mapping[int, Job | MillstreamError]) -> tuple[list[Job], Done]:
    """The jobs, and the errors of those that are none."""
    jobs = [one for one in found.values() if isinstance(one, Job)]
    return jobs, {id: one for id, one in found.items() if isinstance(one, MillstreamError)}


def _cuts(app: App, jobs: Sequence[Job]) -> Batches:
    """Which jobs share a cut, those that others read first: graphs of them, as many as the server has locks for.

    A stream table with triggers, of the user's or of a foreign key, has a cut of its own. Such a trigger may write to a
    source, in the cut's own transaction; whoever reads the source in that cut would see the rows now and again in the
    next slice.
    """
    triggered = _triggered(app, jobs)
    together, apart = list[Graph](), list[Graph]()
    for graph in graphs(_in_order(jobs)):
        (apart if any(job.table.relid in triggered for job in graph) else together).append(graph)
    chosen = _batches(app, together)
    alone = tuple((part,) for graph in apart for part in _parts(graph, triggered))
    return replace(chosen, cuts=chosen.cuts + alone)


# Where all that is due takes less than this part of its share of an empty lock table, others' locks are not counted.
_FEW_LOCKS = 0.25


def _batches(app: App, found: Sequence[Graph]) -> Batches:
    footprints = app.footprints.of(app.conn, [job for graph in found for job in graph])
    share = app.settings.max_lock_share
    chosen = batches(found, footprints, lock_table.empty(app.conn).room(share * _FEW_LOCKS))
    if len(chosen.cuts) <= 1 and not chosen.too_large:
        return chosen
    return batches(found, footprints, lock_table.read(app.conn).room(share))


def _refused(app: App, too_large: Sequence[tuple[Graph, int]]) -> Done:
    """The errors of graphs that the server's lock table has no room for."""
    if not too_large:
        return {}
    share, found = app.settings.max_lock_share, lock_table.read(app.conn)
    return {
        job.table.id: LockTableFull.by_graph(
            [job.table.name, *(other.table.name for other in graph if other is not job)],
            locks, found.room(share), found.per_transaction, found.setting_for(locks, share),
        )
        for graph, locks in too_large
        for job in graph
    }  # fmt: skip


def _triggered(app: App, jobs: Sequence[Job]) -> set[int]:
    """The stream tables, by oid, that have triggers which are not ours."""
    relids = [job.table.relid for job in jobs]
    query = (
        "SELECT DISTINCT tgrelid::int8 FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid "
        "WHERE tgrelid = ANY(%s::oid[]) AND p.pronamespace <> 'millstream_changes'::regnamespace"
    )
    return {relid for (relid,) in app.conn.execute(query, ([relid for relid in relids if relid],))}


def _parts(graph: Graph, triggered: set[int]) -> list[list[Job]]:
    """A graph in parts, one after the other: each stream table that has triggers is alone."""
    cuts = list[list[Job]]()
    alone = True
    for job in graph:
        if alone or job.table.relid in triggered:
            cuts.append([])
        cuts[-1].append(job)
        alone = job.table.relid in triggered
    return cuts


def _in_order(jobs: Sequence[Job]) -> list[Job]:
    """Each after those that it reads."""
    ordered, waiting = list[Job](), list(jobs)
    while waiting:
        unmade = {job.table.id for job in waiting}
        ready = [job for job in waiting if not job.upstreams & (unmade - {job.table.id})] or waiting
        ordered += ready
        waiting = [job for job in waiting if all(job is not one for one in ready)]
    return ordered


# Of all that share a cut, though one of them may be the cause.
_OF_THE_CUT = (Conflict, LockTableFull)


def _in_cuts(app: App, together: Sequence[Graph], initiated_by: Initiator, known: Done) -> Done:
    """Refresh graphs in one cut. If the cut fails as a whole, refresh each half of them in a cut of its own.

    `known` are the outcomes of other stream tables: what reads one that failed tells why it is behind.
    """
    done = _in_one_cut(app, [job for graph in together for job in graph], initiated_by, known)
    failed = [graph for graph in together if any(isinstance(done[job.table.id], _OF_THE_CUT) for job in graph)]
    if len(together) > 1 and failed:
        log.warning("cut divided", graphs=len(failed))
        half = (len(failed) + 1) // 2
        for part in (failed[:half], failed[half:]):
            done |= _in_cuts(app, part, initiated_by, known) if part else {}
    return done


def _in_one_cut(app: App, jobs: Sequence[Job], initiated_by: Initiator, known: Done) -> Done:
    """Refresh these; what must be mended first, or met a concurrent change, is tried again by itself."""
    done = Done()
    waiting = list(jobs)
    ended = set[int]()
    for _ in range(_TRIES):
        refresher = app.refresher({**known, **done})
        outcomes = list(zip(waiting, refresher.refresh(waiting, initiated_by), strict=True))
        done |= {job.table.id: one for job, one in outcomes if not isinstance(one, Gap | Postponed | Unplanned)}
        without_java = {job.table.id for job, one in outcomes if isinstance(one, JavaEnded)}
        # What ends a second Java is not worth a third one.
        given_up, ended = without_java & ended, ended | without_java
        worth = (*AGAIN, JavaEnded, *transitions.LOST)
        waiting = [job for job, one in outcomes if isinstance(one, worth) and job.table.id not in given_up]
        if lost := next((one for _, one in outcomes if isinstance(one, transitions.LOST)), None):
            transitions.fall_back(app, lost.detail)
        if gaps := [(job, one) for job, one in outcomes if isinstance(one, Gap)]:
            again, failed = _sorted(repair(app, gaps))
            waiting, done = _in_order([*waiting, *again]), done | failed
        if unplanned := [job for job, one in outcomes if isinstance(one, Unplanned)]:
            planned, failed = _sorted({job.table.id: job_of(app, job.table, full=False) for job in unplanned})
            waiting, done = _in_order([*waiting, *planned]), done | failed
        if not waiting:
            return done
    return {job.table.id: Conflict.on(job.table.name, "Its sources keep changing.") for job in waiting} | done


def _record_failure(app: App, table: StreamTable, error: MillstreamError, initiated_by: Initiator) -> None:
    if error.waits and (table.status, table.last_error) == ("ERROR", str(error)):
        # Nothing new: it is looked at again with every tick.
        return
    log.error("refresh failed", table=table.name, code=error.code, message=error.message)
    if isinstance(error, NoSuchStreamTable):
        return
    if isinstance(error, Cancelled):
        history.add(app.conn, _entry(table, error, "CANCELLED", initiated_by))
        return
    if error.retryable:
        _record_transient(app, table, error)
        return
    count = stream_tables.record_failure(app.conn, table.id, error)
    history.add(app.conn, _entry(table, error, "FAILED", initiated_by))
    if error.waits:
        stream_tables.set_status(app.conn, table.id, "ERROR")
        return
    if count >= app.settings.max_consecutive_errors and initiated_by == "SCHEDULER":
        stream_tables.set_status(app.conn, table.id, "SUSPENDED")
        log.error("suspended", table=table.name, errors=count)


def _record_transient(app: App, table: StreamTable, error: MillstreamError) -> None:
    """Count the error, unless somebody refreshes the stream table right now: that refresh would fail by this write."""
    try:
        with app.mutex.stream_tables([table.id]) as free:
            if free:
                stream_tables.record_transient(app.conn, table.id, error)
    except psycopg.Error as trouble:
        # The server may lack what it takes to write this down, too.
        if app.conn.closed or transient_trouble(code_of(trouble)) is None:
            raise
        log.warning("not recorded", table=table.name, reason=str(trouble))


def _record_interrupt(app: App, tables: Sequence[StreamTable], initiated_by: Initiator) -> None:
    """Tell in the history which refreshes Ctrl-C has cancelled; where the connection is lost with it, nowhere."""
    error = "Interrupted by Ctrl-C."
    entries = [_entry(one, Cancelled.by(one.name, error), "CANCELLED", initiated_by) for one in tables]
    try:
        app.reach()
        history.add_all(app.conn, entries)
    except (MillstreamError, psycopg.Error) as trouble:
        log.warning("not recorded", reason=str(trouble))


def _entry(table: StreamTable, error: MillstreamError, status: Status, initiated_by: Initiator) -> HistoryEntry:
    """A refresh that has applied nothing."""
    now = datetime.now(UTC)
    return HistoryEntry(table.id, "SKIP", error.code, status, initiated_by, now, finished_at=now, error=error.as_dict())


def _has_moved(outcome: RefreshReport | MillstreamError) -> bool:
    return isinstance(outcome, RefreshReport) and outcome.action != "NO_DATA"


def _prune(app: App, filter_versions: Sequence[Job]) -> None:
    relids = sorted({relid for job in filter_versions for relid in reads(job)})
    if relids:
        try:
            prune.prune(app.conn, relids)
        except psycopg.errors.LockNotAvailable:
            log.info("prune postponed", sources=relids)
    failpoint("pruned")
