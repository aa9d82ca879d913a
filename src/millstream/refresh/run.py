"""Refresh stream tables: one cut for all that are due, one transaction for all they change.

    lock  ->  cut  ->  facts  ->  decide  ->  evaluate, apply (each)  ->  frontier, history  ->  commit  ->  prune

Tables without changes cost one line in one statement and no Spark job. One that fails is rolled
back to its own savepoint; the others commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import psycopg

from millstream.capture import buffer, inventory
from millstream.catalog import grounds, history, prints, relations, sources, stream_tables
from millstream.catalog.grounds import Change, Grounds
from millstream.catalog.history import HistoryEntry, Initiator
from millstream.catalog.prints import Memory
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import (
    Busy,
    Conflict,
    LockNotHad,
    MillstreamError,
    NoSuchStreamTable,
    RefreshFailed,
    SourceChanged,
    TargetDiffers,
)
from millstream.frontier.snapshot import Slice
from millstream.observe.failpoint import failpoint
from millstream.plan.block import Block, Input
from millstream.refresh.access import Access
from millstream.refresh.apply import Apply
from millstream.refresh.cut import Cut, cut
from millstream.refresh.decide import Decision, Facts, SourceFacts, decide
from millstream.refresh.evaluate import Evaluation
from millstream.refresh.recurse import Recursing
from millstream.refresh.report import RefreshReport, Tally
from millstream.refresh.versions import Versions
from millstream.spark.engine import Engine
from millstream.store.connection import Connection
from millstream.store.names import Names

# Called in the cut's transaction when a table has been brought up to date, before the commit.
Witness = Callable[[Cut, "Job", RefreshReport], None]


@dataclass(frozen=True)
class Job:
    """A stream table to refresh, with its plan."""

    table: StreamTable
    blocks: tuple[Block, ...]
    full: bool = False
    grounds: Grounds = field(default_factory=dict)

    @property
    def block(self) -> Block:
        """The block whose outputs are the stream table."""
        return self.blocks[-1]

    @property
    def clock(self) -> bool:
        """Does its query ask what time it is?"""
        inputs = [one for block in self.blocks for one in block.inputs()]
        by = (scan for one in inputs for moving in one.moving for scan in moving.by)
        return any(scan.table.is_clock for scan in (*by, *(one.scan for one in inputs)))

    def reads(self) -> Iterator[Input]:
        """Its inputs that are tables."""
        return (one for block in self.blocks for one in block.inputs() if one.scan.table.stored)

    @property
    def names(self) -> Names:
        return Names(self.table.id, self.table.schema_name, self.table.name)


@dataclass(frozen=True)
class Gap:
    """Why a table could not be refreshed yet: its plan, and capture of these sources, must be made again."""

    relids: tuple[int, ...]
    what: str


Outcome = RefreshReport | MillstreamError | Gap
# By id of a stream table: its sources as they are recorded.
Read = Mapping[int, Sequence[sources.Source]]


@dataclass
class Refresher:
    """What a refresh needs: a connection, Spark when it is asked for, and limits."""

    conn: Connection
    dsn: str
    engine: Callable[[], Engine]
    max_lookup_rows: int
    max_change_ratio: float
    max_recursion_steps: int
    witness: Witness | None = None
    memory: Memory = field(default_factory=Memory)

    def refresh(self, jobs: Sequence[Job], initiated_by: Initiator) -> list[Outcome]:
        """Refresh these in one cut; per job a report, what went wrong, or what must be mended first, in order."""
        with self._locked(jobs) as free:
            outcomes = self._attempt([job for job in jobs if job.table.id in free], initiated_by)
        by_id = dict(zip([job.table.id for job in jobs if job.table.id in free], outcomes, strict=True))
        return [by_id.get(job.table.id) or Busy.refreshing(job.table.name) for job in jobs]

    # -- one cut ---------------------------------------------------------------------------

    def _attempt(self, jobs: list[Job], initiated_by: Initiator) -> list[Outcome]:
        if not jobs:
            return []
        try:
            with cut(self.conn, relations.names(self.conn, sorted(set().union(*map(reads, jobs))))) as now:
                return self._unless_busy(now, jobs, initiated_by)
        except LockNotHad as error:
            return [error for _ in jobs]
        except psycopg.errors.LockNotAvailable as error:
            return [LockNotHad.by_writer(job.table.name, str(error)) for job in jobs]
        except psycopg.errors.SerializationFailure as error:
            return [Conflict.on(job.table.name, str(error)) for job in jobs]

    def _unless_busy(self, now: Cut, jobs: list[Job], initiated_by: Initiator) -> list[Outcome]:
        """Leave out what reads a source that was not to be had."""
        busy = {job.table.id: ", ".join(str(one) for one in now.busy if one.oid in reads(job)) for job in jobs}
        ready = [job for job in jobs if not busy[job.table.id]]
        done = iter(self._in_cut(now, ready, initiated_by) if ready else ())
        return [LockNotHad.by_reader(name) if (name := busy[job.table.id]) else next(done) for job in jobs]

    def _in_cut(self, now: Cut, jobs: list[Job], initiated_by: Initiator) -> list[Outcome]:
        tables = stream_tables.get_all(self.conn, [job.table.id for job in jobs])
        aside = dict[int, Outcome]()
        aside |= {job.table.id: NoSuchStreamTable.named(job.table.name) for job in jobs if job.table.id not in tables}
        current = [replace(job, table=tables[job.table.id]) for job in jobs if job.table.id in tables]
        read = sources.read_by_each(self.conn, list(tables))
        aside_too, changes = self._looked_at(current, read)
        aside |= aside_too
        done = dict[int, Outcome]()
        for level in _levels([job for job in current if job.table.id not in aside]):
            facts = self._facts(level, read, changes)
            outcomes = self._decided(now, level, facts, initiated_by)
            done |= {job.table.id: outcome for job, outcome in zip(level, outcomes, strict=True)}
        return [aside.get(job.table.id) or done[job.table.id] for job in jobs]

    def _looked_at(self, jobs: Sequence[Job], read: Read) -> tuple[dict[int, Outcome], dict[int, list[Change]]]:
        """Which of these must be put aside, and what has changed under the others; those that are as they were when
        they were last found sound are not looked at again."""
        found = prints.taken(self.conn, {job.table.id: job.grounds for job in jobs})
        new = [job for job in jobs if not self.memory.holds(job.table.id, job.grounds, found[job.table.id])]
        changes = self._changes(new)
        aside = {job.table.id: why for job in new if (why := _unplanned(job, changes.get(job.table.id, ())))}
        aside |= self._check_capture([job for job in new if job.table.id not in aside], read)
        for job in new:
            if job.table.id not in aside and job.table.id not in changes:
                self.memory.keep(job.table.id, job.grounds, found[job.table.id])
        return aside, changes

    def _changes(self, jobs: Sequence[Job]) -> dict[int, list[Change]]:
        """What is not as planned or not as recorded, by stream table: one question for all."""
        found = dict[int, list[Change]]()
        if not jobs:
            return found
        for one in grounds.changed(self.conn, {job.table.id: job.grounds for job in jobs}):
            found.setdefault(one.stream_table_id, []).append(one)
        return found

    def _decided(
        self, now: Cut, current: list[Job], facts: list[Facts], initiated_by: Initiator
    ) -> list[RefreshReport | MillstreamError]:
        decisions = [decide(one) for one in facts]
        outcomes: list[RefreshReport | MillstreamError] = []
        idle = [job for job, decision in zip(current, decisions, strict=True) if decision.action == "NO_DATA"]
        self._advance_idle(now, idle, initiated_by)
        for job, decision in zip(current, decisions, strict=True):
            if decision.action == "NO_DATA":
                outcomes.append(self._witnessed(now, job, _idle(now, job, initiated_by)))
            else:
                outcomes.append(self._one(now, job, decision, initiated_by))
        return outcomes

    def _one(self, now: Cut, job: Job, decision: Decision, initiated_by: Initiator) -> RefreshReport | MillstreamError:
        try:
            with self.conn.transaction():
                with _as_ours(job):
                    report = self._carried_out(now, job, decision, initiated_by)
                self._witnessed(now, job, report)
            if job.table.relid and report.rows_changed:
                now.written.add(job.table.relid)
            return report
        except psycopg.errors.SerializationFailure:
            raise
        except psycopg.errors.LockNotAvailable as error:
            return LockNotHad.by_writer(job.table.name, str(error))
        except MillstreamError as error:
            return _named(error, job)
        except psycopg.Error as error:
            return RefreshFailed.because(job.table.name, str(error))

    def _witnessed(self, now: Cut, job: Job, report: RefreshReport) -> RefreshReport:
        if self.witness is not None:
            self.witness(now, job, report)
        return report

    # -- deciding --------------------------------------------------------------------------

    def _facts(self, jobs: Sequence[Job], read: Read, changes: Mapping[int, Sequence[Change]]) -> list[Facts]:
        relids = sorted({source.relid for job in jobs for source in read[job.table.id]})
        sizes = self._sizes(relids)
        pairs = [(s.relid, job.table.frontier) for job in jobs if job.table.frontier for s in read[job.table.id]]
        pending = {(one.relid, str(one.frontier)): one for one in buffer.pending(self.conn, pairs)}
        moved = {id: grounds.reason(found) for id, found in changes.items()}
        return [self._facts_of(job, read[job.table.id], pending, sizes, moved.get(job.table.id, "")) for job in jobs]

    def _facts_of(
        self,
        job: Job,
        read: Sequence[sources.Source],
        pending: dict[tuple[int, str], buffer.Pending],
        sizes: dict[int, float],
        moved: str,
    ) -> Facts:
        found = []
        for source in read if job.table.frontier else ():
            one = pending[source.relid, str(job.table.frontier)]
            name = f"{source.schema}.{source.name}"
            found.append(SourceFacts(name, one.rows, sizes.get(source.relid, 0.0), one.truncated, one.changed))
        populated = job.table.frontier is not None
        before = job.table.data_timestamp is not None
        return Facts(
            populated, job.table.refresh_mode, tuple(found), job.full, self.max_change_ratio, moved, before, job.clock
        )

    def _check_capture(self, jobs: Sequence[Job], read: Read) -> dict[int, Outcome]:
        """Every source must be captured whole, as it was set up; otherwise nothing of it can be trusted.

        What can be set up again is a Gap for whoever reads it. Where a column is not what it was, the stream tables
        that read the column are told so. The others go on.
        """
        if not jobs:
            return {}
        relids = sorted(set().union(*map(reads, jobs)))
        drifts = sources.drifts(self.conn, relids)
        lacking = {relid: "; ".join(found) for relid, found in inventory.gaps(self.conn, relids).items() if found}
        gaps = {**lacking, **{relid: "; ".join(found.values()) for relid, found in drifts.items()}}
        aside = dict[int, Outcome]()
        for job in jobs:
            own = {relid: gaps[relid] for relid in sorted(reads(job)) if relid in gaps}
            own |= _uncaptured(job, read[job.table.id])
            if error := _changed(job, drifts):
                aside[job.table.id] = error
            elif own:
                aside[job.table.id] = Gap(tuple(own), "; ".join(own.values()))
        return aside

    def _sizes(self, relids: Sequence[int]) -> dict[int, float]:
        rows = self.conn.execute(
            "SELECT oid::int8, greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = ANY(%s::oid[])", (list(relids),)
        )
        return {row[0]: row[1] for row in rows}

    # -- doing -----------------------------------------------------------------------------

    def _carried_out(self, now: Cut, job: Job, decision: Decision, initiated_by: Initiator) -> RefreshReport:
        started, tally = time.perf_counter(), Tally()
        since = job.table.data_timestamp if decision.action == "DIFFERENTIAL" else None
        versions = Versions(now, job.names, since)
        access = Access(now, job.names, self.engine, self.dsn, self.max_lookup_rows, tally, versions)
        changed = False
        for block in job.blocks:
            if block.terms:
                self._recurse(job, block, access, decision)
                changed = True
                continue
            evaluation = Evaluation(block, self.engine, access, tally)
            apply = Apply(self.conn, block, job.names.at(block.position), tally, inner=block is not job.block)
            if decision.action == "DIFFERENTIAL":
                assert job.table.frontier is not None
                slice_ = Slice(job.table.frontier, now.snapshot)
                rows = evaluation.changes(slice_.start)
                changed |= rows is not None
                apply.difference(rows, evaluation)
            else:
                apply.whole(evaluation.everything(), evaluation)
        if decision.reason == "CLOCK" and not changed:
            self._advance_idle(now, [job], initiated_by)
            return _idle(now, job, initiated_by)
        report = RefreshReport(
            job.table.name, decision.action, decision.reason, now.taken_at, now.frontier(reads(job)),
            tally.changed["I"], tally.changed["U"], tally.changed["D"],
            (time.perf_counter() - started) * 1000, tally.spark_jobs, tuple(tally.inputs), tally.phases, initiated_by,
        )  # fmt: skip
        self._recorded(now, [job], [report])
        if decision.action != "DIFFERENTIAL":
            grounds.record(self.conn, job.table.id, job.grounds)
        return report

    def _recurse(self, job: Job, block: Block, access: Access, decision: Decision) -> None:
        evaluations = [Evaluation(term.block, self.engine, access, access.tally) for term in block.terms]
        names = job.names.at(block.position)
        recursion = Recursing(self.conn, block, names, evaluations, access, self.max_recursion_steps)
        if decision.action == "DIFFERENTIAL":
            assert job.table.frontier is not None
            recursion.difference(job.table.frontier)
        else:
            recursion.whole()

    def _advance_idle(self, now: Cut, jobs: Sequence[Job], initiated_by: Initiator) -> None:
        if not jobs:
            return
        by_frontier = dict[str, list[int]]()
        for job in jobs:
            by_frontier.setdefault(str(now.frontier(reads(job))), []).append(job.table.id)
        for frontier, ids in by_frontier.items():
            stream_tables.advance(self.conn, ids, frontier, now.taken_at, action="NO_DATA", reason="NO_CHANGE")
        if initiated_by != "SCHEDULER":
            idle = [(job, _idle(now, job, initiated_by)) for job in jobs]
            history.add_all(self.conn, [_entry(job, report, initiated_by, now.taken_at) for job, report in idle])

    def _recorded(self, now: Cut, jobs: Sequence[Job], reports: Sequence[RefreshReport]) -> None:
        """Frontier and history, in the transaction of the rows themselves."""
        for job, report in zip(jobs, reports, strict=True):
            stream_tables.advance(
                self.conn,
                [job.table.id],
                str(report.frontier),
                now.taken_at,
                action=report.action,
                reason=report.reason,
            )
            history.add(self.conn, _entry(job, report, report.initiated_by, now.taken_at))
        failpoint("frontier_advanced")

    # -- locks -----------------------------------------------------------------------------

    @contextmanager
    def _locked(self, jobs: Sequence[Job]) -> Iterator[set[int]]:
        """Hold each table's lock, taken before the cut: a snapshot from before the lock could be stale."""
        free = try_lock(self.conn, [job.table.id for job in jobs])
        try:
            yield free
        finally:
            unlock(self.conn, free)


@contextmanager
def _as_ours(job: Job) -> Iterator[None]:
    """An error that is neither PostgreSQL's nor ours (Arrow's, Spark's, Java's) becomes ours, with its cause."""
    try:
        yield
    except (MillstreamError, psycopg.Error):
        raise
    except Exception as error:
        raise RefreshFailed.because(job.table.name, f"{type(error).__name__}: {error}") from error


def _unplanned(job: Job, changes: Sequence[Change]) -> Outcome | None:
    """Why the plan cannot be carried out, if it cannot."""
    planned_otherwise = {one.kind for one in changes if one.is_planned_otherwise}
    if "target" in planned_otherwise and job.table.row_key:
        return TargetDiffers.without_index(job.table.name, ", ".join(job.table.row_key.indexed().split("\n")))
    if planned_otherwise:
        return Gap((), f"{', '.join(sorted(planned_otherwise))} replaced under {job.table.name}")
    return None


def _uncaptured(job: Job, read: Sequence[sources.Source]) -> dict[int, str]:
    """Sources that are not recorded, or whose buffers lack a column that is read: something was cut short."""
    captured = {one.relid: {column.name for column in one.columns} for one in read}
    wanted = [(one.scan.table.oid, one.used()) for one in job.reads()]
    lacking = [oid for oid, used in wanted if oid not in captured or used - captured[oid]]
    return dict.fromkeys(lacking, "a column is not captured")


def _changed(job: Job, drifts: Mapping[int, Mapping[str, str]]) -> SourceChanged | None:
    """A column that the job reads, or a whole table, that is not what it was."""
    for one in job.reads():
        table = one.scan.table
        for column, what in drifts.get(table.oid, {}).items():
            if column in one.used() or (not column and what != sources.MEMBERS_CHANGED):
                return SourceChanged.shape(f"{table.schema}.{table.name}", what)
    return None


def _levels(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs, given in the order of their dependencies, in groups of which none reads another."""
    levels = list[list[Job]]()
    for job in jobs:
        if not levels or reads(job) & {other.table.relid for other in levels[-1]}:
            levels.append([])
        levels[-1].append(job)
    return levels


def _idle(now: Cut, job: Job, initiated_by: Initiator) -> RefreshReport:
    """The report where nothing has changed."""
    frontier = now.frontier(reads(job))
    return RefreshReport(job.table.name, "NO_DATA", "NO_CHANGE", now.taken_at, frontier, initiated_by=initiated_by)


def reads(job: Job) -> set[int]:
    """The tables that it reads."""
    return {one.scan.table.oid for one in job.reads()}


# A session's lock: it goes with the connection, however the process ends.
def try_lock(conn: Connection, ids: Sequence[int]) -> set[int]:
    """Take the locks on these stream tables that nobody has."""
    taken = "SELECT id, pg_try_advisory_lock(hashtext('millstream'), id) FROM unnest(%s::int4[]) AS id"
    return {id_ for id_, held in conn.execute(taken, (list(ids),)) if held}


def unlock(conn: Connection, ids: Iterable[int]) -> None:
    """Give them back."""
    if not conn.closed and not conn.broken:
        given = "SELECT pg_advisory_unlock(hashtext('millstream'), id) FROM unnest(%s::int4[]) AS id"
        conn.execute(given, (list(ids),))


def _entry(job: Job, report: RefreshReport, initiated_by: Initiator, started: datetime) -> HistoryEntry:
    return HistoryEntry(
        stream_table_id=job.table.id, action=report.action, reason=report.reason, status="COMPLETED",
        initiated_by=initiated_by, started_at=started, finished_at=datetime.now(UTC),
        data_timestamp=report.data_timestamp, frontier=report.frontier,
        rows_read=report.rows_read, rows_inserted=report.rows_inserted,
        rows_updated=report.rows_updated, rows_deleted=report.rows_deleted, spark_jobs=report.spark_jobs,
        inputs=[one.as_dict() for one in report.inputs], phases=dict(report.phases),
    )  # fmt: skip


def _named(error: MillstreamError, job: Job) -> MillstreamError:
    """An error from below does not know the table's name."""
    if isinstance(error, RefreshFailed) and not error.facts.get("name"):
        return RefreshFailed.because(job.table.name, error.detail)
    if isinstance(error, Conflict) and not error.facts.get("name"):
        return Conflict.on(job.table.name, error.detail)
    return error
