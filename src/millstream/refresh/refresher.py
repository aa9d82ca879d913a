"""Refresh stream tables: one cut for all that are due, one transaction for all their changes.

    lock  ->  cut  ->  facts  ->  decide  ->  evaluate, apply (each)  ->  frontier, history  ->  commit  ->  prune

Stream tables without changes share one statement and need no Spark job. One that fails is rolled
back to its own savepoint; the others commit.
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
from millstream.postgres import relations, session_settings
from millstream.postgres.connection import Connection
from millstream.postgres.failures import failure_from, failure_here
from millstream.postgres.table_locks import Patience
from millstream.refresh.apply.record import initiator, record_idle
from millstream.refresh.buffers import WalSession
from millstream.refresh.carry_out import carry_out
from millstream.refresh.cut import Cut, cut
from millstream.refresh.decide import Decision, Facts, decide
from millstream.refresh.facts import facts_of, slices
from millstream.refresh.job import (
    Gap,
    Job,
    Outcome,
    Postponed,
    SourcesByTable,
    Unplanned,
    levels,
    relids_read,
)
from millstream.refresh.preflight import preflight
from millstream.refresh.reasons import REASONS
from millstream.refresh.report import RefreshReport
from millstream.settings import Settings
from millstream.spark.engine import Engine
from millstream.store import staging

# How long to wait for the lock of a stream table; a killed process's locks are released within this
# time. The scheduler does not wait: it tries again later, and refreshes others meanwhile.
WAITING = Patience(seconds=3.0, longest_pause=0.2)

# Called in the cut's transaction after each refresh, before the commit, with the session settings
# of the stream table; `verify` compares rows there.
Witness = Callable[[Cut, Job, RefreshReport], None]

# Called at the start of a cut's transaction to change the definition of a stream table; returns the
# job with it.
Prepare = Callable[[Job], Job]


class _Abandoned(Exception):
    """Rolls back a cut whose definition was changed for a job that was then not refreshed."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes


class _NotPlanned(Exception):
    """Ends a cut in which stream tables need a plan that they do not have."""

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
    """Which stream tables passed the pre-flight checks, and at which version stamps."""
    known: Mapping[int, RefreshReport | MillstreamError] = field(default_factory=dict)
    """Results of earlier refreshes of other stream tables."""
    ended_by: Callable[[BaseException], str | None] = lambda error: None
    """Return how Java has ended, if that may be the cause of an error."""
    epoch: Epoch | None = None
    """In a service: its leadership, without which nothing may be committed."""
    journal: Journal | None = None
    """Shows other sessions which refreshes are running."""
    prepare: Prepare | None = None
    """Changes the definition of what is refreshed, in the same transaction: both are committed, or
    neither.
    """

    def refresh(self, jobs: Sequence[Job], initiated_by: Initiator) -> list[Outcome]:
        """Refresh these in one cut; return for each job a report, an error, or what must be
        repaired first.
        """
        # Before the cut, whose snapshot must not be older than the lock.
        patience = ONCE if initiated_by == "SCHEDULER" else WAITING
        with self.mutex.stream_tables([job.table.id for job in jobs], patience) as free:
            outcomes = self._attempt([job for job in jobs if job.table.id in free], initiated_by)
        by_id = dict(
            zip([job.table.id for job in jobs if job.table.id in free], outcomes, strict=True)
        )
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
            with cut(self.conn, read, self._writable_by_triggers(jobs)) as now:
                if self.epoch is not None:
                    self.epoch.hold(self.conn)
                if self.prepare is not None:
                    jobs = [self.prepare(job) for job in jobs]
                outcomes = self._refresh_readable(now, jobs, initiated_by)
                if self.prepare is not None and not all(
                    isinstance(one, RefreshReport) for one in outcomes
                ):
                    raise _Abandoned(outcomes)
            self._journal_end(jobs, outcomes)
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
            # An error of the whole cut: at its start, in a shared statement, or at COMMIT.
            return [failure_from(job.table.name, error) for job in jobs]

    def _writable_by_triggers(self, jobs: list[Job]) -> list[relations.Name]:
        """Lock the stream tables to which other roles may attach triggers, before their triggers
        are checked.
        """
        relids = [job.table.relid for job in jobs if job.table.relid]
        return relations.names(
            self.conn,
            sorted(foreign_code.open_tables(self.conn, relids, self.settings.trusted_roles)),
        )

    def _refresh_readable(
        self, now: Cut, jobs: list[Job], initiated_by: Initiator
    ) -> list[Outcome]:
        """Refresh the jobs whose sources could be locked; the others get LockNotHad."""
        needed = {job.table.id: relids_read(job) | {job.table.relid or 0} for job in jobs}
        busy = {
            id: ", ".join(str(one) for one in now.busy if one.oid in oids)
            for id, oids in needed.items()
        }
        ready = [job for job in jobs if not busy[job.table.id]]
        done = iter(self._refresh_in_cut(now, ready, initiated_by) if ready else ())
        return [
            LockNotHad.by_reader(name) if (name := busy[job.table.id]) else next(done)
            for job in jobs
        ]

    def _refresh_in_cut(self, now: Cut, jobs: list[Job], initiated_by: Initiator) -> list[Outcome]:
        """Check the jobs, then refresh those that pass, level by level: each after the stream
        tables that it reads.
        """
        tables = stream_tables.get_all(self.conn, [job.table.id for job in jobs])
        # The outcomes of the jobs that are put aside: they are not refreshed in this cut.
        aside = dict[int, Outcome]()
        aside |= {
            job.table.id: NoSuchStreamTable.named(job.table.name)
            for job in jobs
            if job.table.id not in tables
        }
        current = [
            replace(job, table=tables[job.table.id]) for job in jobs if job.table.id in tables
        ]
        read = sources.read_by_each(self.conn, list(tables))
        aside_too, changes = preflight(self.conn, self.memory, current, read, self.settings)
        aside |= aside_too
        if self.prepare is None:
            aside |= _with_fewer_sources(
                [job for job in current if job.table.id not in aside], read
            )
        aside |= self._without_wal(now, [job for job in current if job.table.id not in aside], read)
        self._check_planned(now, current, read, aside, changes)
        done = dict[int, Outcome]()
        for level in levels([job for job in current if job.table.id not in aside]):
            done |= self._waiting(now, level, {**self.known, **aside, **done})
            ready = [job for job in level if job.table.id not in done]
            facts = facts_of(
                now.buffers, ready, read, changes, self.settings.differential_max_change_ratio
            )
            outcomes = self._decide_and_refresh(now, ready, facts, initiated_by)
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
        """Raise if a stream table without a plan must change in this cut, before anything is
        written.
        """
        unplanned = {job.table.id for job in jobs if not job.blocks}
        if not unplanned:
            return
        ready = [job for job in jobs if job.table.id not in aside]
        facts = facts_of(
            now.buffers, ready, read, changes, self.settings.differential_max_change_ratio
        )
        changing = {
            id for id, outcome in aside.items() if isinstance(outcome, Gap)
        } | changes.keys()
        for job, known in zip(ready, facts, strict=True):
            reads_other_tables = not job.blocks and job.recorded_relids != _relids(
                read[job.table.id]
            )
            if decide(known).action != "NO_DATA" or reads_other_tables:
                changing.add(job.table.id)
        # Jobs come in the order of their dependencies: a reader of a table that changes may change
        # with it.
        for job in jobs:
            if job.upstreams & changing:
                changing.add(job.table.id)
        if changing & unplanned:
            raise _NotPlanned(changing & unplanned)

    def _waiting(
        self, now: Cut, jobs: list[Job], outcomes: Mapping[int, Outcome]
    ) -> dict[int, Outcome]:
        """Return the outcomes of jobs that must wait: a stream table that they read is tried again,
        or never filled.
        """
        reading = [job for job in jobs if job.upstreams]
        if not reading:
            return {}
        found = upstreams.older_than_cut(self.conn, [job.table.id for job in reading], now.taken_at)
        now.behind |= {
            id: tuple(_with_reason(one, outcomes.get(one.id)) for one in own)
            for id, own in found.items()
        }
        waiting = dict[int, Outcome]()
        for job in reading:
            unfilled = [
                one.name for one in now.behind.get(job.table.id, ()) if one.data_timestamp is None
            ]
            if any(
                isinstance(outcomes.get(id), Gap | Conflict | Postponed) for id in job.upstreams
            ):
                waiting[job.table.id] = Postponed()
            elif unfilled:
                waiting[job.table.id] = NotFilled.upstream(job.table.name, unfilled[0])
        return waiting

    def _without_wal(self, now: Cut, jobs: list[Job], read: SourcesByTable) -> dict[int, Outcome]:
        """Return errors of jobs that read a source whose changes WAL capture has not stored up to
        the cut.
        """
        now.buffers.sources = {
            source.relid: source for job in jobs for source in read[job.table.id]
        }
        now.buffers.reach(slices(jobs, read), self.wal)
        lacking = [
            (job.table.id, now.buffers.lacks(*pair)) for job in jobs for pair in slices([job], read)
        ]
        return {id: error for id, error in lacking if error is not None}

    def _decide_and_refresh(
        self, now: Cut, current: list[Job], facts: list[Facts], initiated_by: Initiator
    ) -> list[RefreshReport | MillstreamError]:
        """Decide for each job; record those without changes together, and refresh the others."""
        decisions = [decide(one) for one in facts]
        outcomes: list[RefreshReport | MillstreamError] = []
        idle = [
            job
            for job, decision in zip(current, decisions, strict=True)
            if decision.action == "NO_DATA"
        ]
        reports = record_idle(self.conn, now, idle, initiated_by)
        busy = [
            job
            for job, decision in zip(current, decisions, strict=True)
            if decision.action != "NO_DATA"
        ]
        self._journal_begin(now, zip(current, decisions, strict=True), initiated_by)
        shapes = staging.shapes(self.conn, {job.names: job.blocks for job in busy}) if busy else {}
        for job, decision in zip(current, decisions, strict=True):
            if decision.action == "NO_DATA":
                outcomes.append(self._call_witness(now, job, reports[job.table.id]))
            else:
                outcomes.append(
                    self._refresh_one(
                        now, replace(job, shapes=shapes[job.names]), decision, initiated_by
                    )
                )
        return outcomes

    def _journal_begin(
        self, now: Cut, decided: Iterable[tuple[Job, Decision]], initiated_by: Initiator
    ) -> None:
        """Record running refreshes in the journal, except those for CLOCK, which mostly have
        nothing to do.
        """
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

    def _journal_end(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
        if self.journal is not None:
            ended = zip(jobs, outcomes, strict=True)
            self.journal.end(
                [job.table.id for job, outcome in ended if isinstance(outcome, RefreshReport)]
            )

    def _refresh_one(
        self, now: Cut, job: Job, decision: Decision, initiated_by: Initiator
    ) -> RefreshReport | MillstreamError:
        """Refresh one stream table in a savepoint; return its report, or its error after a
        rollback.
        """
        try:
            try:
                report = self._carry_out(now, job, decision, initiated_by)
            except psycopg.DataError as error:
                # The row may have been inserted and deleted since the frontier, and is in no
                # version of the result.
                if decision.action != "DIFFERENTIAL":
                    raise
                log.warning(
                    "tried again with consolidated changes", table=job.table.name, reason=str(error)
                )
                report = self._carry_out(now, job, decision, initiated_by, consolidated=True)
            if job.table.relid and report.rows_changed:
                now.written.add(job.table.relid)
            return report
        except (psycopg.errors.SerializationFailure, psycopg.errors.OutOfMemory):
            # The whole transaction has failed and must end.
            raise
        except MillstreamError as error:
            return _with_name(error, job)
        except psycopg.Error as error:
            if self.conn.closed:
                raise
            return failure_from(job.table.name, error)

    def _carry_out(
        self,
        now: Cut,
        job: Job,
        decision: Decision,
        initiated_by: Initiator,
        *,
        consolidated: bool = False,
    ) -> RefreshReport:
        with self.conn.transaction():
            with self._converting_errors(job):
                report = carry_out(
                    self, now, job, decision, initiated_by, consolidated=consolidated
                )
            return self._call_witness(now, job, report)

    def _call_witness(self, now: Cut, job: Job, report: RefreshReport) -> RefreshReport:
        if self.witness is not None:
            with session_settings.under(self.conn, job.table.settings):
                self.witness(now, job, report)
        return report

    @contextmanager
    def _converting_errors(self, job: Job) -> Iterator[None]:
        """Convert errors of Arrow, Spark and Java to ours, with the original as cause."""
        try:
            yield
        except (psycopg.Error, JavaEnded):
            raise
        except Exception as error:
            if how := self.ended_by(
                error.__cause__ if isinstance(error, RefreshFailed) and error.__cause__ else error
            ):
                raise JavaEnded.while_refreshing(job.table.name, how) from error
            if isinstance(error, MillstreamError):
                raise
            raise failure_here(job.table.name, error) from error


def _relids(read: Sequence[sources.Source]) -> set[int]:
    return {source.relid for source in read}


def _with_fewer_sources(jobs: Sequence[Job], read: SourcesByTable) -> dict[int, Outcome]:
    """Return a Gap for each job with more recorded sources than its plan: a change of its query was
    interrupted.
    """
    less = [job.table for job in jobs if _relids(read[job.table.id]) - relids_read(job)]
    return {
        table.id: Gap((), f"more sources are recorded than {table.name} reads") for table in less
    }


def _with_reason(upstream: OlderUpstream, outcome: Outcome | None) -> OlderUpstream:
    """Add the error of an upstream that failed in this cut."""
    return (
        replace(upstream, last_error=str(outcome))
        if isinstance(outcome, MillstreamError)
        else upstream
    )


def _with_name(error: MillstreamError, job: Job) -> MillstreamError:
    """Add the table's name to an error from a lower room."""
    if error.facts.get("name", job.table.name):
        return error
    named: dict[type[MillstreamError], Callable[[str, str], MillstreamError]] = {
        Conflict: Conflict.on, Cancelled: Cancelled.by, RefreshFailed: RefreshFailed.because
    }  # fmt: skip
    if isinstance(error, ServerTrouble):
        message = error.message.replace('""', f'"{job.table.name}"', 1)
        return ServerTrouble(
            message, detail=error.detail, hint=error.hint, **{**error.facts, "name": job.table.name}
        )
    return named[type(error)](job.table.name, error.detail) if type(error) in named else error
