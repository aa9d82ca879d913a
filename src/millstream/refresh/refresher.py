"""Refresh stream tables: one cut for all that are due, one transaction for all their changes.

    lock  ->  cut  ->  facts  ->  decide  ->  evaluate, apply (each)  ->  frontier, history  ->  commit  ->  prune

Stream tables without changes share one statement and need no Spark job. One that fails is rolled back to its own
savepoint; the others commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg

from millstream.catalog import sources, stream_tables, upstreams
from millstream.catalog.definitions import foreign_code
from millstream.catalog.definitions.definition_digests import Change
from millstream.catalog.definitions.digest_cache import DigestCache
from millstream.catalog.history import HistoryEntry, Initiator
from millstream.catalog.journal import Journal
from millstream.catalog.processes.leadership import Epoch
from millstream.catalog.processes.mutex import ONCE, Mutex
from millstream.catalog.upstreams import OlderUpstream
from millstream.errors import (
    Busy,
    Cancelled,
    Conflict,
    JavaEnded,
    LockNotHad,
    LockTableFull,
    MillstreamError,
    NoSuchStreamTable,
    NotFilled,
    RefreshFailed,
    ServerTrouble,
)
from millstream.observe import log
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.failures import failure_from, failure_here
from millstream.postgres.table_locks import Patience
from millstream.refresh.apply.record import initiator, record_idle
from millstream.refresh.buffers import WalSession
from millstream.refresh.carry_out import carry_out
from millstream.refresh.cut import Cut, cut
from millstream.refresh.decide import Decision, Facts, decide
from millstream.refresh.facts import facts_of, slices
from millstream.refresh.job import Gap, Job, Outcome, Postponed, SourcesByTable, Unplanned, levels, relids_read
from millstream.refresh.preflight import preflight
from millstream.refresh.reasons import REASONS
from millstream.refresh.report import RefreshReport
from millstream.settings import Settings
from millstream.spark.engine import Engine
from millstream.store import staging

# For whoever works on a stream table; the lock of a process that was killed goes within that time. The scheduler does
# not wait: it tries again later, and refreshes others meanwhile.
WAITING = Patience(seconds=3.0, longest_pause=0.2)

# Called in the cut's transaction when a table has been brought up to date, before the commit.
Witness = Callable[[Cut, Job, RefreshReport], None]


# Called at the start of a cut's transaction; changes what a job stands on, and returns the job with that.
Prepare = Callable[[Job], Job]


class _Abandoned(Exception):
    """Rolls back a cut that was prepared for a job, and in which that job was not carried out."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes


class _NotPlanned(Exception):
    """Ends a cut in which these stream tables would have to be planned."""

    def __init__(self, ids: set[int]) -> None:
        self.ids = ids


@dataclass
class Refresher:
    """Refreshes stream tables, with the connection, Spark and the settings of an application."""

    conn: Connection
    mutex: Mutex
    dsn: str
    engine: Callable[[], Engine]
    settings: Settings
    wal: WalSession | None = None
    """Opens a session that sees what WAL capture has stored up to the cut."""
    witness: Witness | None = None
    memory: DigestCache = field(default_factory=DigestCache)
    known: Mapping[int, RefreshReport | MillstreamError] = field(default_factory=dict)
    """Results of earlier refreshes of other stream tables."""
    ended_by: Callable[[BaseException], str | None] = lambda error: None
    """Return how Java has ended, if that may be the cause of an error."""
    epoch: Epoch | None = None
    """In a service: its leadership, without which nothing may be committed."""
    journal: Journal | None = None
    """Shows other sessions what is at work."""
    prepare: Prepare | None = None
    """Changes the definition of what is refreshed, in the same transaction: both are committed, or neither."""

    def refresh(self, jobs: Sequence[Job], initiated_by: Initiator) -> list[Outcome]:
        """Refresh these in one cut; per job a report, what went wrong, or what must be mended first, in order."""
        # Before the cut: what a snapshot from before the lock shows could be stale.
        patience = ONCE if initiated_by == "SCHEDULER" else WAITING
        with self.mutex.stream_tables([job.table.id for job in jobs], patience) as free:
            outcomes = self._attempt([job for job in jobs if job.table.id in free], initiated_by)
        by_id = dict(zip([job.table.id for job in jobs if job.table.id in free], outcomes, strict=True))
        busy = [job.table.id for job in jobs if job.table.id not in free]
        holders = self.mutex.holders(busy) if busy else {}
        names = {job.table.id: job.table.name for job in jobs}
        for id in busy:
            by_id[id] = Busy.working_on(names[id], holders.get(id), patience.seconds)
        return [by_id[job.table.id] for job in jobs]

    # -- one cut ---------------------------------------------------------------------------

    def _attempt(self, jobs: list[Job], initiated_by: Initiator) -> list[Outcome]:
        if not jobs:
            return []
        try:
            read = relations.names(self.conn, sorted(set().union(*map(relids_read, jobs))))
            with cut(self.conn, read, self._open(jobs)) as now:
                if self.epoch is not None:
                    self.epoch.hold(self.conn)
                if self.prepare is not None:
                    jobs = [self.prepare(job) for job in jobs]
                outcomes = self._unless_busy(now, jobs, initiated_by)
                if self.prepare is not None and not all(isinstance(one, RefreshReport) for one in outcomes):
                    raise _Abandoned(outcomes)
            self._end(jobs, outcomes)
            staging.release(self.conn)
            return outcomes
        except _Abandoned as error:
            return error.outcomes
        except _NotPlanned as error:
            return [Unplanned() if job.table.id in error.ids else Postponed() for job in jobs]
        except LockNotHad as error:
            return [error for _ in jobs]
        except psycopg.errors.LockNotAvailable as error:
            return [LockNotHad.by_writer(job.table.name, str(error)) for job in jobs]
        except psycopg.errors.OutOfMemory as error:
            return [LockTableFull.at(job.table.name, str(error)) for job in jobs]
        except psycopg.Error as error:
            if self.conn.closed:
                raise
            # Of the cut as a whole: its start, what all of them share, or its COMMIT.
            return [failure_from(job.table.name, error) for job in jobs]

    def _open(self, jobs: list[Job]) -> list[relations.Name]:
        """Lock the stream tables to which other roles may attach triggers, before their triggers are checked."""
        relids = [job.table.relid for job in jobs if job.table.relid]
        return relations.names(
            self.conn, sorted(foreign_code.open_tables(self.conn, relids, self.settings.trusted_roles))
        )

    def _unless_busy(self, now: Cut, jobs: list[Job], initiated_by: Initiator) -> list[Outcome]:
        """Leave out what reads a source that was not to be had."""
        needed = {job.table.id: relids_read(job) | {job.table.relid or 0} for job in jobs}
        busy = {id: ", ".join(str(one) for one in now.busy if one.oid in oids) for id, oids in needed.items()}
        ready = [job for job in jobs if not busy[job.table.id]]
        done = iter(self._in_cut(now, ready, initiated_by) if ready else ())
        return [LockNotHad.by_reader(name) if (name := busy[job.table.id]) else next(done) for job in jobs]

    def _in_cut(self, now: Cut, jobs: list[Job], initiated_by: Initiator) -> list[Outcome]:
        tables = stream_tables.get_all(self.conn, [job.table.id for job in jobs])
        aside = dict[int, Outcome]()
        aside |= {job.table.id: NoSuchStreamTable.named(job.table.name) for job in jobs if job.table.id not in tables}
        current = [replace(job, table=tables[job.table.id]) for job in jobs if job.table.id in tables]
        read = sources.read_by_each(self.conn, list(tables))
        aside_too, changes = preflight(self.conn, self.memory, current, read, self.settings)
        aside |= aside_too
        if self.prepare is None:
            aside |= _reading_less([job for job in current if job.table.id not in aside], read)
        aside |= self._behind(now, [job for job in current if job.table.id not in aside], read)
        self._check_planned(now, current, read, aside, changes)
        done = dict[int, Outcome]()
        for level in levels([job for job in current if job.table.id not in aside]):
            done |= self._waiting(now, level, {**self.known, **aside, **done})
            ready = [job for job in level if job.table.id not in done]
            facts = facts_of(now.buffers, ready, read, changes, self.settings.differential_max_change_ratio)
            outcomes = self._decided(now, ready, facts, initiated_by)
            done |= {job.table.id: outcome for job, outcome in zip(ready, outcomes, strict=True)}
        return [aside.get(job.table.id) or done[job.table.id] for job in jobs]

    def _check_planned(
        self,
        now: Cut,
        jobs: list[Job],
        read: SourcesByTable,
        aside: Mapping[int, Outcome],
        changes: Mapping[int, list[Change]],
    ) -> None:
        """Raise where a stream table that has not been planned is to change in this cut, before anything is written."""
        unplanned = {job.table.id for job in jobs if not job.blocks}
        if not unplanned:
            return
        ready = [job for job in jobs if job.table.id not in aside]
        facts = facts_of(now.buffers, ready, read, changes, self.settings.differential_max_change_ratio)
        changing = {id for id, outcome in aside.items() if isinstance(outcome, Gap)} | changes.keys()
        for job, known in zip(ready, facts, strict=True):
            reads_other_tables = not job.blocks and job.recorded_relids != _relids(read[job.table.id])
            if decide(known).action != "NO_DATA" or reads_other_tables:
                changing.add(job.table.id)
        # Jobs come in the order of their dependencies: a reader of a table that changes may change with it.
        for job in jobs:
            if job.upstreams & changing:
                changing.add(job.table.id)
        if changing & unplanned:
            raise _NotPlanned(changing & unplanned)

    def _waiting(self, now: Cut, jobs: list[Job], outcomes: Mapping[int, Outcome]) -> dict[int, Outcome]:
        """Return those that must wait for a stream table that they read: it is tried again, or was never filled."""
        reading = [job for job in jobs if job.upstreams]
        if not reading:
            return {}
        found = upstreams.older_than_cut(self.conn, [job.table.id for job in reading], now.taken_at)
        now.behind |= {id: tuple(_explained(one, outcomes.get(one.id)) for one in own) for id, own in found.items()}
        waiting = dict[int, Outcome]()
        for job in reading:
            unfilled = [one.name for one in now.behind.get(job.table.id, ()) if one.data_timestamp is None]
            if any(isinstance(outcomes.get(id), Gap | Conflict | Postponed) for id in job.upstreams):
                waiting[job.table.id] = Postponed()
            elif unfilled:
                waiting[job.table.id] = NotFilled.upstream(job.table.name, unfilled[0])
        return waiting

    def _behind(self, now: Cut, jobs: list[Job], read: SourcesByTable) -> dict[int, Outcome]:
        """Return those whose sources WAL capture has not read up to the cut."""
        now.buffers.sources = {source.relid: source for job in jobs for source in read[job.table.id]}
        now.buffers.reach(slices(jobs, read), self.wal)
        lacking = [(job.table.id, now.buffers.lacks(*pair)) for job in jobs for pair in slices([job], read)]
        return {id: error for id, error in lacking if error is not None}

    def _decided(
        self, now: Cut, current: list[Job], facts: list[Facts], initiated_by: Initiator
    ) -> list[RefreshReport | MillstreamError]:
        decisions = [decide(one) for one in facts]
        outcomes: list[RefreshReport | MillstreamError] = []
        idle = [job for job, decision in zip(current, decisions, strict=True) if decision.action == "NO_DATA"]
        reports = record_idle(self.conn, now, idle, initiated_by)
        busy = [job for job, decision in zip(current, decisions, strict=True) if decision.action != "NO_DATA"]
        self._begin(now, zip(current, decisions, strict=True), initiated_by)
        shapes = staging.shapes(self.conn, {job.names: job.blocks for job in busy}) if busy else {}
        for job, decision in zip(current, decisions, strict=True):
            if decision.action == "NO_DATA":
                outcomes.append(self._witnessed(now, job, reports[job.table.id]))
            else:
                outcomes.append(self._one(now, replace(job, shapes=shapes[job.names]), decision, initiated_by))
        return outcomes

    def _begin(self, now: Cut, decided: Iterable[tuple[Job, Decision]], initiated_by: Initiator) -> None:
        """Enter in the journal what is now at work. If only time has passed, most often nothing is to be done."""
        if self.journal is None:
            return
        by = {
            job.table.id: (job, decision, initiator(job, initiated_by))
            for job, decision in decided
            if decision.action != "NO_DATA" and decision.reason != "CLOCK"
        }
        at_work = [
            HistoryEntry(id, decision.action, decision.reason, "RUNNING", whose, now.taken_at)
            for id, (_, decision, whose) in by.items()
        ]
        for entry in self.journal.begin(at_work, now.own):
            job, decision, _ = by[entry.stream_table_id]
            if decision.action == "REINITIALIZE":
                self.journal.alert(
                    "reinitialize_needed", stream_table=job.table.qualified, reason=decision.reason,
                    meaning=REASONS[decision.reason], detail=decision.detail,
                )  # fmt: skip

    def _end(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
        if self.journal is not None:
            ended = zip(jobs, outcomes, strict=True)
            self.journal.end([job.table.id for job, outcome in ended if isinstance(outcome, RefreshReport)])

    def _one(self, now: Cut, job: Job, decision: Decision, initiated_by: Initiator) -> RefreshReport | MillstreamError:
        try:
            try:
                report = self._carried_out(now, job, decision, initiated_by)
            except psycopg.DataError as error:
                # Perhaps for a row that came and went, which is in no answer of the query's.
                if decision.action != "DIFFERENTIAL":
                    raise
                log.warning("tried again without rows that came and went", table=job.table.name, reason=str(error))
                report = self._carried_out(now, job, decision, initiated_by, consolidated=True)
            if job.table.relid and report.rows_changed:
                now.written.add(job.table.relid)
            return report
        except (psycopg.errors.SerializationFailure, psycopg.errors.OutOfMemory):
            # Of the whole transaction: it must end before anything can go on.
            raise
        except MillstreamError as error:
            return _named(error, job)
        except psycopg.Error as error:
            if self.conn.closed:
                raise
            return failure_from(job.table.name, error)

    def _carried_out(
        self, now: Cut, job: Job, decision: Decision, initiated_by: Initiator, *, consolidated: bool = False
    ) -> RefreshReport:
        with self.conn.transaction():
            with self._as_ours(job):
                report = carry_out(self, now, job, decision, initiated_by, consolidated=consolidated)
            return self._witnessed(now, job, report)

    def _witnessed(self, now: Cut, job: Job, report: RefreshReport) -> RefreshReport:
        if self.witness is not None:
            self.witness(now, job, report)
        return report

    @contextmanager
    def _as_ours(self, job: Job) -> Iterator[None]:
        """Make an error that is neither PostgreSQL's nor ours (Arrow's, Spark's, Java's) ours, with its cause."""
        try:
            yield
        except (psycopg.Error, JavaEnded):
            raise
        except Exception as error:
            if how := self.ended_by(error.__cause__ if isinstance(error, RefreshFailed) and error.__cause__ else error):
                raise JavaEnded.while_refreshing(job.table.name, how) from error
            if isinstance(error, MillstreamError):
                raise
            raise failure_here(job.table.name, error) from error


def _relids(read: Sequence[sources.Source]) -> set[int]:
    return {source.relid for source in read}


def _reading_less(jobs: Sequence[Job], read: SourcesByTable) -> dict[int, Outcome]:
    """Return a Gap for each job that reads less than is recorded: giving it another query was interrupted."""
    less = [job.table for job in jobs if _relids(read[job.table.id]) - relids_read(job)]
    return {table.id: Gap((), f"more is recorded than {table.name} reads") for table in less}


def _explained(upstream: OlderUpstream, outcome: Outcome | None) -> OlderUpstream:
    """Tell why an upstream was not refreshed in this cut, where it was tried here."""
    return replace(upstream, last_error=str(outcome)) if isinstance(outcome, MillstreamError) else upstream


def _named(error: MillstreamError, job: Job) -> MillstreamError:
    """Add the table's name to an error from a lower room."""
    if error.facts.get("name", job.table.name):
        return error
    named: dict[type[MillstreamError], Callable[[str, str], MillstreamError]] = {
        Conflict: Conflict.on, Cancelled: Cancelled.by, RefreshFailed: RefreshFailed.because
    }  # fmt: skip
    if isinstance(error, ServerTrouble):
        message = error.message.replace('""', f'"{job.table.name}"', 1)
        return ServerTrouble(message, detail=error.detail, hint=error.hint, **{**error.facts, "name": job.table.name})
    return named[type(error)](job.table.name, error.detail) if type(error) in named else error
