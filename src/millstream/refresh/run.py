"""Refresh stream tables: one cut for all that are due, one transaction for all they change.

    lock  ->  cut  ->  facts  ->  decide  ->  evaluate, apply (each)  ->  frontier, history  ->  commit  ->  prune

Tables without changes cost one line in one statement and no Spark job. One that fails is rolled
back to its own savepoint; the others commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg

from millstream.capture import buffer, inventory
from millstream.catalog import history, relations, sources, stream_tables
from millstream.catalog.history import HistoryEntry, Initiator
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import (
    Busy,
    Conflict,
    LockNotHad,
    MillstreamError,
    NoSuchStreamTable,
    RefreshFailed,
    SourceChanged,
)
from millstream.frontier.snapshot import Slice
from millstream.observe.failpoint import failpoint
from millstream.plan.block import Block, Input
from millstream.refresh.access import Access
from millstream.refresh.apply import Apply
from millstream.refresh.cut import Cut, cut
from millstream.refresh.decide import Decision, Facts, SourceFacts, decide
from millstream.refresh.evaluate import Evaluation
from millstream.refresh.report import RefreshReport, Tally
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

    @property
    def block(self) -> Block:
        """The block whose outputs are the stream table."""
        return self.blocks[-1]

    def reads(self) -> Iterator[Input]:
        """Its inputs that are tables."""
        return (one for block in self.blocks for one in block.inputs() if one.scan.table.block is None)

    @property
    def names(self) -> Names:
        return Names(self.table.id, self.table.schema_name, self.table.name)


class Gap(Exception):
    """Capture of some sources must be set up again before a cut can be trusted."""

    def __init__(self, relids: list[int], what: str) -> None:
        super().__init__(what)
        self.relids = relids


@dataclass
class Refresher:
    """What a refresh needs: a connection, Spark when it is asked for, and limits."""

    conn: Connection
    dsn: str
    engine: Callable[[], Engine]
    max_lookup_rows: int
    max_change_ratio: float
    witness: Witness | None = None

    def refresh(self, jobs: Sequence[Job], initiated_by: Initiator) -> list[RefreshReport | MillstreamError]:
        """Refresh these in one cut; per job a report or what went wrong, in order."""
        with self._locked(jobs) as free:
            outcomes = self._attempt([job for job in jobs if job.table.id in free], initiated_by)
        by_id = dict(zip([job.table.id for job in jobs if job.table.id in free], outcomes, strict=True))
        return [by_id.get(job.table.id) or Busy.refreshing(job.table.name) for job in jobs]

    # -- one cut ---------------------------------------------------------------------------

    def _attempt(self, jobs: list[Job], initiated_by: Initiator) -> list[RefreshReport | MillstreamError]:
        if not jobs:
            return []
        try:
            with cut(self.conn, relations.names(self.conn, sorted(set().union(*map(_reads, jobs))))) as now:
                return self._unless_busy(now, jobs, initiated_by)
        except LockNotHad as error:
            return [error for _ in jobs]
        except psycopg.errors.SerializationFailure as error:
            return [Conflict.on(job.table.name, str(error)) for job in jobs]

    def _unless_busy(self, now: Cut, jobs: list[Job], initiated_by: Initiator) -> list[RefreshReport | MillstreamError]:
        """Leave out what reads a source that was not to be had."""
        busy = {job.table.id: ", ".join(str(one) for one in now.busy if one.oid in _reads(job)) for job in jobs}
        ready = [job for job in jobs if not busy[job.table.id]]
        done = iter(self._in_cut(now, ready, initiated_by) if ready else ())
        return [LockNotHad.by_reader(name) if (name := busy[job.table.id]) else next(done) for job in jobs]

    def _in_cut(self, now: Cut, jobs: list[Job], initiated_by: Initiator) -> list[RefreshReport | MillstreamError]:
        tables = stream_tables.get_all(self.conn, [job.table.id for job in jobs])
        gone = [NoSuchStreamTable.named(job.table.name) for job in jobs if job.table.id not in tables]
        if gone:
            raise gone[0]
        current = [Job(tables[job.table.id], job.blocks, job.full) for job in jobs]
        broken = self._check_capture(current)
        sound = iter(self._decided(now, [job for job in current if job.table.id not in broken], initiated_by))
        return [broken.get(job.table.id) or next(sound) for job in current]

    def _decided(self, now: Cut, current: list[Job], initiated_by: Initiator) -> list[RefreshReport | MillstreamError]:
        facts = self._facts(current)
        decisions = [decide(one) for one in facts]
        outcomes: list[RefreshReport | MillstreamError] = []
        idle = [job for job, decision in zip(current, decisions, strict=True) if decision.action == "NO_DATA"]
        self._advance_idle(now, idle, initiated_by)
        for job, decision in zip(current, decisions, strict=True):
            if decision.action == "NO_DATA":
                report = RefreshReport(
                    job.table.name, "NO_DATA", decision.reason, now.taken_at, now.snapshot, initiated_by=initiated_by
                )
                outcomes.append(self._witnessed(now, job, report))
            else:
                outcomes.append(self._one(now, job, decision, initiated_by))
        return outcomes

    def _one(self, now: Cut, job: Job, decision: Decision, initiated_by: Initiator) -> RefreshReport | MillstreamError:
        try:
            with self.conn.transaction():
                return self._witnessed(now, job, self._carried_out(now, job, decision, initiated_by))
        except psycopg.errors.SerializationFailure:
            raise
        except MillstreamError as error:
            return _named(error, job)
        except psycopg.Error as error:
            return RefreshFailed.because(job.table.name, str(error))

    def _witnessed(self, now: Cut, job: Job, report: RefreshReport) -> RefreshReport:
        if self.witness is not None:
            self.witness(now, job, report)
        return report

    # -- deciding --------------------------------------------------------------------------

    def _facts(self, jobs: Sequence[Job]) -> list[Facts]:
        read = sources.read_by_each(self.conn, [job.table.id for job in jobs])
        relids = sorted({source.relid for own in read.values() for source in own})
        sizes = self._sizes(relids)
        pairs = [(s.relid, job.table.frontier) for job in jobs if job.table.frontier for s in read[job.table.id]]
        pending = {(one.relid, str(one.frontier)): one for one in buffer.pending(self.conn, pairs)}
        return [self._facts_of(job, read[job.table.id], pending, sizes) for job in jobs]

    def _facts_of(
        self,
        job: Job,
        read: Sequence[sources.Source],
        pending: dict[tuple[int, str], buffer.Pending],
        sizes: dict[int, float],
    ) -> Facts:
        found = []
        for source in read if job.table.frontier else ():
            one = pending[source.relid, str(job.table.frontier)]
            name = f"{source.schema}.{source.name}"
            found.append(SourceFacts(name, one.rows, sizes.get(source.relid, 0.0), one.truncated, one.changed))
        populated = job.table.frontier is not None
        return Facts(populated, job.table.refresh_mode, tuple(found), job.full, self.max_change_ratio)

    def _check_capture(self, jobs: Sequence[Job]) -> dict[int, MillstreamError]:
        """Every source must be captured whole, as it was set up; otherwise nothing here can be trusted.

        What can be set up again is a Gap. Where a column is not what it was, the stream tables that read the
        source are told so, by id, and the others go on.
        """
        relids = sorted(set().union(*map(_reads, jobs)))
        drift = sources.drift(self.conn, relids)
        broken = {relid: what for relid, what in drift.items() if what != sources.MEMBERS_CHANGED}
        lacking = {relid: "; ".join(found) for relid, found in inventory.gaps(self.conn, relids).items() if found}
        gaps = {**lacking, **drift, **self._uncaptured(jobs)}
        repairable = {relid: what for relid, what in gaps.items() if relid not in broken}
        if repairable:
            raise Gap(sorted(repairable), "; ".join(repairable.values()))
        return {job.table.id: error for job in jobs if (error := _changed(job, broken))}

    def _uncaptured(self, jobs: Sequence[Job]) -> dict[int, str]:
        """Sources whose buffers lack a column that is read: a create was cut short before it came to that."""
        read = sources.read_by_each(self.conn, [job.table.id for job in jobs])
        captured = {one.relid: {c.name for c in one.columns} for own in read.values() for one in own}
        wanted = ((one.scan.table.oid, one.used()) for job in jobs for one in job.reads())
        return {oid: "a column is not captured" for oid, used in wanted if used - captured.get(oid, set())}

    def _sizes(self, relids: Sequence[int]) -> dict[int, float]:
        rows = self.conn.execute(
            "SELECT oid::int8, greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = ANY(%s::oid[])", (list(relids),)
        )
        return {row[0]: row[1] for row in rows}

    # -- doing -----------------------------------------------------------------------------

    def _carried_out(self, now: Cut, job: Job, decision: Decision, initiated_by: Initiator) -> RefreshReport:
        started, tally = time.perf_counter(), Tally()
        engine = self.engine()
        access = Access(now, job.names, engine.spark, self.dsn, self.max_lookup_rows, tally)
        for block in job.blocks:
            evaluation = Evaluation(block, engine, access, tally)
            apply = Apply(self.conn, block, job.names.at(block.position), tally, inner=block is not job.block)
            if decision.action == "DIFFERENTIAL":
                assert job.table.frontier is not None
                slice_ = Slice(job.table.frontier, now.snapshot)
                apply.difference(evaluation.changes(slice_.start), evaluation)
            else:
                apply.whole(evaluation.everything(), evaluation)
        report = RefreshReport(
            job.table.name, decision.action, decision.reason, now.taken_at, now.snapshot,
            tally.changed["I"], tally.changed["U"], tally.changed["D"],
            (time.perf_counter() - started) * 1000, tally.spark_jobs, tuple(tally.inputs), tally.phases, initiated_by,
        )  # fmt: skip
        self._recorded(now, [job], [report])
        return report

    def _advance_idle(self, now: Cut, jobs: Sequence[Job], initiated_by: Initiator) -> None:
        if not jobs:
            return
        ids = [job.table.id for job in jobs]
        stream_tables.advance(self.conn, ids, str(now.snapshot), now.taken_at, action="NO_DATA", reason="NO_CHANGE")
        if initiated_by != "SCHEDULER":
            entries = [
                _entry(
                    job,
                    RefreshReport(job.table.name, "NO_DATA", "NO_CHANGE", now.taken_at, now.snapshot),
                    initiated_by,
                    now.taken_at,
                )
                for job in jobs
            ]
            history.add_all(self.conn, entries)

    def _recorded(self, now: Cut, jobs: Sequence[Job], reports: Sequence[RefreshReport]) -> None:
        """Frontier and history, in the transaction of the rows themselves."""
        for job, report in zip(jobs, reports, strict=True):
            stream_tables.advance(
                self.conn, [job.table.id], str(now.snapshot), now.taken_at, action=report.action, reason=report.reason
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


def _changed(job: Job, broken: Mapping[int, str]) -> SourceChanged | None:
    for one in job.reads():
        table = one.scan.table
        if table.oid in broken:
            return SourceChanged.shape(f"{table.schema}.{table.name}", broken[table.oid])
    return None


def _reads(job: Job) -> set[int]:
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
