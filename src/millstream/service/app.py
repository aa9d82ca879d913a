"""The application: wires the rooms together for the verbs.

It has one connection for the catalog and the cut, one Spark session, started when first needed, and
a cached plan for each stream table, valid while its definition digests are unchanged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession

from millstream.capture.transition.context import TransitionMemory
from millstream.capture.wal.follower import Follower
from millstream.catalog import sources, stream_tables, upstreams
from millstream.catalog.definitions import definition_digests, query_names, rights
from millstream.catalog.definitions.definition_digests import Digests
from millstream.catalog.definitions.digest_cache import DigestCache
from millstream.catalog.journal import Journal
from millstream.catalog.processes.leadership import Epoch
from millstream.catalog.processes.mutex import Mutex
from millstream.catalog.stream_tables import StreamTable
from millstream.catalog.target import target_shape
from millstream.compiler.server import renames
from millstream.compiler.server.plan_query import QueryPlan, Terms, plan_query, version_stamp
from millstream.errors import Closed, JavaEnded, MillstreamError
from millstream.observe import log
from millstream.postgres import fence
from millstream.postgres.connection import Connection, hang_up, session
from millstream.postgres.table_locks import waiting_at_most
from millstream.refresh.batches import Footprints
from millstream.refresh.job import Job
from millstream.refresh.refresher import Refresher, Witness
from millstream.refresh.report import RefreshReport
from millstream.scheduler import dependencies
from millstream.service import block_tables
from millstream.service.follow_types import follow_types
from millstream.service.shared import Recorded, Shared
from millstream.settings import Settings
from millstream.spark.engine import Engine

# Seconds that planning again waits for a locked table, while other sessions wait for this one.
PLAN_PATIENCE = 2.0
# Seconds that a statement of the main session waits for a lock, unless it has another limit.
LOCK_PATIENCE = 30.0

# Called with the current step and its progress (0..1, or None).
Progress = Callable[[str, float | None], None]


class App:
    """Everything the verbs need."""

    def __init__(
        self,
        dsn: str,
        settings: Settings,
        spark: SparkSession | None = None,
        progress: Progress | None = None,
        shared: Shared | None = None,
    ) -> None:
        self.dsn = dsn
        # Without the settings of the database, which `use` adds.
        self.given = settings
        self.settings = settings
        # Shared by the applications of a service.
        self._is_alone = shared is None
        self._shared = shared or Shared()
        self.conn: Connection = _main_session(dsn)
        self.mutex = self._mutex()
        self.journal = self._journal()
        self.progress: Progress = progress or (lambda step, share: None)
        self.witness: Witness | None = None
        self._epoch: Epoch | None = None
        self.pruned_history_at = float("-inf")
        """When old entries of the history were last removed, by the clock of the process."""
        self.follower = Follower(dsn, settings, reader=self._shared.reader)
        self.steps = TransitionMemory()
        self._given = spark
        self._engine: Engine | None = None
        self.footprints = Footprints()
        self._memory = DigestCache()
        self._is_closed = False

    @property
    def epoch(self) -> Epoch | None:
        """In a service: its epoch, which every transaction of the main session locks."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: Epoch | None) -> None:
        self._epoch = epoch
        fence.put(self.conn, epoch.hold if epoch else None)

    @property
    def held(self) -> set[int]:
        """The ids of the stream tables that an application of this process works on right now."""
        return set(self._shared.held)

    def use(self, settings: Settings) -> None:
        """Use these settings from now on. Spark continues with those with which it was started."""
        self.settings = settings
        self.follower.use(settings)

    def engine(self) -> Engine:
        """Return Spark, started on first use, and again after its Java has ended."""
        if self._engine is not None and (how := self._engine.java.ended()):
            self._let_go(self._engine, how)
        if self._engine is None:
            # Imported here, so that commands that need no Spark start quickly.
            from millstream.spark.session import prepare

            self.progress("starting Spark", None)
            spark = self._given or self._start()
            # A new session on the given context, so that the settings and views of the given
            # session do not change.
            own = self._is_alone and not self._given
            self._engine = Engine(spark if own else prepare(spark.newSession()))
            self._engine.warm()
        return self._engine

    def _start(self) -> SparkSession:
        from millstream.spark.session import start

        settings = self.settings
        return start(settings.spark_master, settings.spark_conf, settings.spark_driver_memory)

    def _let_go(self, engine: Engine, how: str) -> None:
        """Stop using a Java process that has ended."""
        if self._given is not None:
            raise JavaEnded.of_given_session(how)
        log.warning("Java has ended", how=how)
        engine.java.forget()
        self._engine = None

    def ended_by(self, error: BaseException) -> str | None:
        """Return how Java ended, if that may be the cause of an error."""
        return self._engine.java.ended_by(error) if self._engine else None

    def refresher(self, known: Mapping[int, RefreshReport | MillstreamError]) -> Refresher:
        """Return a refresher; `known` has the results of earlier refreshes of other stream tables."""
        return Refresher(
            self.conn,
            self.mutex,
            self.dsn,
            self.engine,
            self.settings,
            wal=self.follower.session,
            witness=self.witness,
            memory=self._memory,
            known=known,
            ended_by=self.ended_by,
            epoch=self.epoch,
            journal=self.journal,
        )

    def plan(self, table: StreamTable) -> QueryPlan:
        """Return the plan of a stream table; plan it again if a definition has changed."""
        known = self._shared.plans.get(table.id)
        if known is None or known[0] != table.created_at:
            known = (table.created_at, plan_recorded(self.conn, table, self.settings.trusted_roles))
            self._shared.plans[table.id] = known
        return known[1]

    def know(self, table: StreamTable, planned: QueryPlan) -> None:
        """Cache the plan with which a stream table and the state of its blocks were created."""
        self._shared.plans[table.id] = (table.created_at, planned)
        self._shared.kept.add(table.id)

    def forget(self, id_: int) -> None:
        """Forget the plan of a stream table."""
        self._shared.forget(id_)

    def job(self, table: StreamTable, *, full: bool = False) -> Job:
        """Return the job for a stream table, the input of a refresh."""
        planned = self.plan(table)
        if table.id not in self._shared.kept:
            self._check_kept(table, planned)
            planned = self.plan(table)
        upstreams = frozenset(one.id for one in planned.upstreams)
        return Job(
            table, planned.blocks, full, planned.digests | _target(table), upstreams=upstreams
        )

    def unplanned(self, tables: Sequence[StreamTable]) -> dict[int, Job]:
        """Return jobs without a plan, for stream tables that need one only if a source has changed.

        Their sources and digests are in the catalog. Otherwise a new process would plan hundreds of
        stream tables of which a few have changed.
        """
        asked = [table for table in tables if self._may_stay_unplanned(table)]
        # Copied, since another application may remove one meanwhile.
        recorded = {table.id: self._shared.recorded.get(table.id) for table in asked}
        read = self._recorded([id_ for id_, known in recorded.items() if known is None])
        self._shared.recorded.update(read)
        jobs = dict[int, Job]()
        for table in asked:
            found, relids, ids = recorded[table.id] or read[table.id]
            if found and relids:
                jobs[table.id] = Job(
                    table, (), digests=found | _target(table), upstreams=ids, recorded_relids=relids
                )
        return jobs

    def _recorded(self, ids: Sequence[int]) -> dict[int, Recorded]:
        if not ids:
            return {}
        stands_on, read = (
            definition_digests.recorded(self.conn, ids),
            sources.read_by_each(self.conn, list(ids)),
        )
        above = upstreams.every(self.conn)
        return {
            id_: (
                stands_on[id_],
                frozenset(source.relid for source in read[id_]),
                frozenset(one.id for one in above.get(id_, ())),
            )
            for id_ in ids
        }

    def _may_stay_unplanned(self, table: StreamTable) -> bool:
        if table.id in self._shared.plans or table.frontier is None:
            return False
        # Plan again what another version planned, even if nothing has changed: its plan may be
        # wrong.
        return table.reads_clock is False and table.planned_by == version_stamp()

    def _check_kept(self, table: StreamTable, planned: QueryPlan) -> None:
        """Check that the state of the blocks matches the plan. If another process is refreshing the
        table, this is done later.
        """
        with self.mutex.stream_tables([table.id]) as free:
            if not free:
                return
            block_tables.replace(self.conn, table, planned)
            if table.relid and follow_types(self.conn, table, planned):
                planned = planned.stored_in(
                    definition_digests.digests_of_target(self.conn, table.relid)
                )
                self._shared.plans[table.id] = (table.created_at, planned)
            with self.conn.transaction():
                dependencies.record(self.conn, table.id, planned.upstreams)
                _record_names(self.conn, table, planned)
                if (table.planned_by, table.reads_clock) != (version_stamp(), planned.reads_clock):
                    stamp, reads_clock = version_stamp(), planned.reads_clock
                    stream_tables.set_planned(
                        self.conn, table.id, planned_by=stamp, reads_clock=reads_clock
                    )
                self.hold_epoch()
            self._shared.kept.add(table.id)

    def _mutex(self) -> Mutex:
        name = self.conn.info.parameter_status("application_name") or "millstream"
        application_name = f"{name} locks of {self.conn.info.backend_pid}"
        return Mutex(self.dsn, application_name=application_name, held=self._shared.held)

    def _journal(self) -> Journal:
        name = self.conn.info.parameter_status("application_name") or "millstream"
        return Journal(self.dsn, application_name=f"{name} journal of {self.conn.info.backend_pid}")

    def named(self, name: str) -> StreamTable:
        return stream_tables.named(self.conn, name)

    def reach(self) -> None:
        """Connect again if the connection was lost: the server may have been restarted."""
        if self._is_closed:
            raise Closed.by_user()
        with contextlib.suppress(psycopg.OperationalError):
            # These do not wait. The first reads the server's last messages, the second finds that
            # the connection was closed.
            self.conn.pgconn.consume_input()
            self.conn.pgconn.consume_input()
        if self.conn.closed:
            self.conn = self._session_of_leader()
            self.mutex.close()
            self.mutex = self._mutex()
            self.journal.close()
            self.journal = self._journal()
            self._memory.forget()

    def _session_of_leader(self) -> Connection:
        """Open a session; in a service only while it leads, since the next leader terminates only
        the sessions that exist then.
        """
        conn = _main_session(self.dsn)
        try:
            if self.epoch is not None:
                fence.put(conn, self.epoch.hold)
                fence.hold(conn)
        except BaseException:
            conn.close()
            raise
        return conn

    def hold_epoch(self) -> None:
        """Hold the leader's epoch until the transaction ends; raise Deposed if another process
        leads.
        """
        fence.hold(self.conn)

    def hang_up(self) -> None:
        """End the running work from another thread: its transaction is rolled back, and it raises
        ServerDown.
        """
        for one in (self.mutex, self.follower, self.journal):
            for conn in one.sessions():
                hang_up(conn)
        hang_up(self.conn)

    def close(self) -> None:
        """Close the connections. A Spark session that Millstream started remains for the process."""
        self._is_closed = True
        self.follower.close()
        self.mutex.close()
        self.journal.close()
        self.conn.close()


def _main_session(dsn: str) -> Connection:
    conn = session(dsn)
    conn.execute(sql.SQL("SET lock_timeout = {}").format(f"{LOCK_PATIENCE:g}s"))
    return conn


def plan_recorded(
    conn: Connection, table: StreamTable, trusted_roles: tuple[str, ...]
) -> QueryPlan:
    """Plan a recorded query with its recorded key, for the stored columns."""
    owner = rights.owners(conn, [table.relid or 0]).get(table.relid or 0)
    with waiting_at_most(conn, PLAN_PATIENCE):
        renamed = renames.find(conn, query_names.recorded(conn, table.id))
        text = (
            renames.follow(conn, table.canonical_query, renamed)
            if renamed
            else table.canonical_query
        )
        keys = renames.present_keys(table.row_key.sources, renamed) if table.row_key else {}
        terms = Terms(owner, trusted_roles, table.settings, table.assume_immutable)
        planned = plan_query(conn, text, qualified=True, keys=keys, terms=terms)
        dependencies.refuse_cycle(conn, table.id, planned.upstreams)
        target_shape.check(conn, table.id, table.name, table.relid or 0, planned.canonical.columns)
        planned = (
            planned.stored_in(definition_digests.digests_of_target(conn, table.relid))
            if table.relid
            else planned
        )
    return (
        planned.keyed(table.row_key.materialized(table.name, planned.block.key))
        if table.row_key
        else planned
    )


def _record_names(conn: Connection, table: StreamTable, planned: QueryPlan) -> None:
    """Record the names in the query's text, and the text, if it was changed after a rename."""
    former = query_names.recorded(conn, table.id)
    if planned.names == former:
        return
    query_names.put(conn, table.id, planned.names)
    if planned.query == table.canonical_query:
        return
    renamed = [one.relid for one in planned.names if one not in former]
    log.warning("followed a rename", table=table.name, query=planned.query)
    keys = {oid: read.key for oid, (read, _) in planned.sources().items()}
    row_key = replace(table.row_key, sources=keys) if table.row_key else None
    stream_tables.set_text(conn, table.id, planned.canonical.text, row_key)
    definition_digests.follow_names(conn, table.id, renamed)
    sources.follow_names(conn, renamed)
    for relid, (_, columns) in planned.sources().items():
        sources.add_dependency(conn, table.id, relid, columns)


def _target(table: StreamTable) -> Digests:
    return (
        {("target", table.relid): table.row_key.indexed()} if table.row_key and table.relid else {}
    )
