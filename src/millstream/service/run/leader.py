"""The leader's loop: give due stream tables to the workers, until it is stopped or loses its lock.

    sleep        until the next deadline, a notification, or the end of a task; at least a tick
    look         ask the agenda what is due, and the buffers whether anything has changed
    dispatch     give graphs to workers: those with changes, and those for which only a cut can tell
    record       from time to time, take a cut for graphs without changes, so that their data timestamp advances

The catalog is read when something in it has changed, and every few seconds. So a tick with nothing
due executes no statement, and one without changes executes one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
from pyspark.sql import SparkSession

from millstream.capture.buffer import probe
from millstream.catalog import sources, stream_tables
from millstream.catalog.processes import leadership
from millstream.catalog.processes.leadership import Epoch
from millstream.catalog.stream_tables import StreamTable
from millstream.compiler.server.plan_query import version_stamp
from millstream.errors import BadSetting
from millstream.observe import log
from millstream.postgres.connection import Connection
from millstream.refresh.refresher import Witness
from millstream.scheduler.agenda import Agenda, Due, target
from millstream.scheduler.batching import batches, is_slow
from millstream.scheduler.dependencies import recorded_graph
from millstream.scheduler.due import refreshable
from millstream.scheduler.round import refresh_tables
from millstream.service import live_settings
from millstream.service.app import App
from millstream.service.run.candidacy import LeaderHeartbeat, LeadershipLost
from millstream.service.run.capture_thread import CaptureThread
from millstream.service.run.continuous_verification import (
    next_to_verify,
    pause_after,
    verify_by_schedule,
)
from millstream.service.run.desk import RequestDesk
from millstream.service.run.source_index import SourceIndex
from millstream.service.run.systemd import Systemd
from millstream.service.run.upkeep import Upkeep
from millstream.service.run.wake_ups import WakeUps
from millstream.service.run.workers import Finished, Task, Workers
from millstream.service.shared import Shared
from millstream.service.verb import verb
from millstream.settings import Settings

# Seconds after which the catalog is read again without a notification.
READ_AGAIN = 15.0
# Notifications (words) after which the catalog is read, and all that the leader reacts to.
CATALOG_WORDS = {"stream_tables", "sources", "ddl"}
HEEDED = CATALOG_WORDS | {"settings", "request", "wal"}
# Seconds between two reactions to the same word, and between two checks of all stream tables after
# DDL, at least.
HASTE, CLOSE_LOOK = 0.25, 5.0
# Cuts that only advance the data timestamp of unchanged stream tables (CONFIRM): their share of the
# time at most, the longest time between two, and how often the leader checks whether one is due. In
# seconds.
IDLE_SHARE, LONGEST_IDLE, CONFIRM_EVERY = 0.01, 300.0, 0.5
# Tasks of the workers: refresh changed graphs, take a cut for unchanged ones, start Spark in
# advance, verify.
REFRESH, CONFIRM, START, VERIFY = "refresh", "confirm", "start Spark", "verify"
# Seconds that a refresh has to end after its connections were closed.
GRACE = 5.0


@dataclass
class _Times:
    """When the loop last did each thing (`may_verify`: may next do it), by the monotonic clock."""

    looked: float = float("-inf")
    read: float = float("-inf")
    noted: float = float("-inf")
    confirmed: float = float("-inf")
    may_verify: float = float("-inf")
    settings: float = float("-inf")
    wal: float = float("-inf")
    close: float = float("-inf")


@dataclass(frozen=True)
class LeaderContext:
    """What a leader needs of the process that it works in."""

    dsn: str
    instance: UUID
    read_settings: Callable[[], Settings]
    is_stopping: Callable[[], bool]
    wake_ups: WakeUps
    systemd: Systemd
    spark: SparkSession | None = None
    """Of a program that embeds the service."""
    witness: Witness | None = None


class Leader:
    """The work of one leader, from the takeover to its end."""

    def __init__(
        self, context: LeaderContext, conn: Connection, epoch: Epoch, heartbeat: LeaderHeartbeat
    ) -> None:
        self._context = context
        self._conn = conn
        self._given = context.read_settings()
        self._settings = live_settings.read(conn, self._given)
        self._epoch = epoch
        self._heartbeat = heartbeat
        self._upkeep = Upkeep(epoch)
        self._agenda = Agenda()
        self._index = SourceIndex()
        # Stream tables for which only a cut can tell whether anything has changed, by their record
        # in the catalog.
        self._unsure = set[int]()
        # Set at the start, since changes before the leader listened were not notified.
        self._words = {"stream_tables", "settings"}
        # The time by the server's clock, and when it was read, by the monotonic clock.
        self._server_time = datetime.now(UTC), time.monotonic()
        self._times = _Times()
        # How long the last cut for unchanged stream tables took.
        self._idle_seconds = 0.0
        # Stream tables that need a cut because of DDL or a task that failed.
        self._must_look_at = set[int]()
        self._has_started_spark = False
        self._shared = Shared()
        self._capture = CaptureThread(
            lambda: self._open_app(reads_wal=True), lambda: context.wake_ups.wake("sources")
        )
        self._shared.reader = self._capture.app.follower
        self._workers = Workers("worker", self._open_app, context.wake_ups.wake, self._prepare)
        self._desk = RequestDesk(self._open_app, context.wake_ups.wake, self._prepare)

    def lead(self) -> None:
        """Work until stopped; raise LeadershipLost, or the error of a lost connection."""
        try:
            self._context.wake_ups.listen(self._conn)
            self._workers.limit = self._settings.max_concurrent_refreshes
            self._capture.start()
            self._desk.open()
            self._context.systemd.ready("leader")
            log.info("leading", epoch=self._epoch.number)
            while not self._context.is_stopping():
                self._turn_unless_locked()
                # Any role may send other words: they wake the leader and are ignored.
                self._words |= self._context.wake_ups.sleep(self._pause(), self._conn) & HEEDED
        finally:
            self._end()

    # -- one turn ----------------------------------------------------------------------------

    def _turn_unless_locked(self) -> None:
        """Run one turn of the loop. If one of our tables is locked, the next turn continues."""
        try:
            self._turn()
        except psycopg.errors.LockNotAvailable as error:
            log.warning("the service waits for a lock", reason=str(error).strip())
            self._times.read = float("-inf")

    def _turn(self) -> None:
        if not self._heartbeat.holds():
            raise LeadershipLost
        self._heartbeat.note_turn()
        self._context.systemd.alive()
        self._take_in(self._workers.finished())
        # Limit how often notifications are handled: any role that may connect can send them.
        now = time.monotonic()
        if "settings" in self._words and now - self._times.settings >= HASTE:
            self._words.discard("settings")
            self._times.settings = now
            self._read_settings()
        if "wal" in self._words and now - self._times.wal >= HASTE:
            self._words.discard("wal")
            self._times.wal = now
            self._capture.store_position(self._conn)
        is_close = "ddl" in self._words and now - self._times.close >= CLOSE_LOOK
        is_asked = is_close or bool(self._words & {"stream_tables", "sources"})
        if (is_asked and now - self._times.read >= HASTE) or now - self._times.read > READ_AGAIN:
            self._heed_catalog_words(now)
        if "request" in self._words or self._desk.is_due():
            self._words.discard("request")
            self._desk.look(self._conn)
        tick = self._settings.scheduler_interval.total_seconds()
        if self._settings.enabled and time.monotonic() - self._times.looked >= tick:
            self._times.looked = time.monotonic()
            self._look()
            self._fill_idle_time()
        if self._upkeep.is_due():
            self._upkeep.look(self._conn, self._settings, self._agenda.watched(), self._now())

    def _heed_catalog_words(self, now: float) -> None:
        """Read the catalog; after DDL, check each stream table by a cut."""
        words, is_close = self._words & CATALOG_WORDS, now - self._times.close >= CLOSE_LOOK
        self._words -= CATALOG_WORDS - (set() if is_close else {"ddl"})
        if "stream_tables" in words:
            self._capture.look()
        if "ddl" in words and is_close:
            self._times.close = now
        self._read_catalog(look_closely="ddl" in words and is_close)

    def _pause(self) -> float:
        """Return how long to sleep if nothing wakes us."""
        longest = min(HASTE if self._words else READ_AGAIN, self._context.systemd.longest_sleep)
        tick = self._settings.scheduler_interval.total_seconds() - (
            time.monotonic() - self._times.looked
        )
        due_at = self._agenda.next_due_at() if self._settings.enabled else None
        if due_at is None:
            return longest
        return min(longest, max(tick, (due_at - self._now()).total_seconds(), 0.0))

    def _look(self) -> None:
        """Give due stream tables with changes to free workers."""
        now = self._now()
        if not (free := self._workers.free):
            return
        # Do not refresh stream tables on which a request works.
        held = {id for one in set(self._shared.held) for id in self._agenda.graph_of(one)}
        if not (ids := [id for id in self._agenda.due_ids(now) if id not in held]):
            return
        maybe_changed = self._maybe_changed()
        quiet = [id for id in ids if id not in maybe_changed]
        self._agenda.found_nothing(quiet, now)
        chosen, unchanged = self._changed([id for id in ids if id in maybe_changed], now)
        slow = sum(task.is_slow for task in self._workers.running)
        given = batches(chosen, workers=self._workers.limit, busy_with_slow=slow, free=free)
        for batch in given:
            self._submit(REFRESH, batch)
        if len(given) < free and time.monotonic() - self._times.confirmed >= CONFIRM_EVERY:
            self._times.confirmed = time.monotonic()
            self._confirm([*quiet, *unchanged], now)

    def _maybe_changed(self) -> set[int]:
        """Return the stream tables of graphs that may have changes, or for which this is not known."""
        found = self._index.maybe_changed(self._conn) | self._unsure | self._must_look_at
        return {id for one in found for id in self._agenda.graph_of(one)}

    def _changed(self, ids: Sequence[int], now: datetime) -> tuple[list[Due], list[int]]:
        """Return the graphs that have changes, or may have, and the ids of the other stream tables."""
        due = self._agenda.due(now, ids)
        pairs = [self._index.pairs(one.tables) for one in due]
        found = probe.changed(self._conn, set().union(*pairs)) if pairs else set()
        unchanged = [
            one
            for one, own in zip(due, pairs, strict=True)
            if not found & own and not self._must_refresh(one)
        ]
        unchanged_ids = [id for one in unchanged for id in one.ids]
        self._agenda.found_nothing(unchanged_ids, now)
        return [one for one in due if one not in unchanged], unchanged_ids

    def _must_refresh(self, due: Due) -> bool:
        """Return True if only a cut can tell whether anything has changed."""
        return any(id in self._unsure or id in self._must_look_at for id in due.ids)

    def _confirm(self, ids: Sequence[int], now: datetime) -> None:
        """Have a worker take a cut for the unchanged stream tables whose data timestamp is old."""
        old = [id for id in ids if self._is_old(self._agenda.tables[id], now)]
        if old:
            self._submit(CONFIRM, self._agenda.due(now, old))

    def _is_old(self, table: StreamTable, now: datetime) -> bool:
        interval = max(target(table, now) or timedelta(0), self._idle_interval(table))
        return table.cut_at is not None and now - table.cut_at >= interval

    def _idle_interval(self, table: StreamTable) -> timedelta:
        """Return how often to record that nothing has changed: it costs a cut, and for WAL capture
        a message.
        """
        interval = timedelta(seconds=min(max(1.0, self._idle_seconds / IDLE_SHARE), LONGEST_IDLE))
        uses_wal = self._index.uses_wal(table.id)
        return max(interval, self._settings.heartbeat_interval) if uses_wal else interval

    def _submit(self, name: str, batch: Sequence[Due]) -> None:
        ids = [id for due in batch for id in due.ids]
        self._agenda.started(ids)
        # Cleared before the cut, since later DDL is notified again.
        self._must_look_at.difference_update(ids)
        slow = any(is_slow(due) for due in batch)
        self._workers.submit(Task(name, lambda app: _refresh(app, ids), ids, slow))

    def _fill_idle_time(self) -> None:
        """Verify a stream table if no worker is busy."""
        is_time = self._settings.verify_budget > 0 and time.monotonic() >= self._times.may_verify
        if self._workers.running or not is_time:
            return
        table = next_to_verify(self._agenda.tables.values(), self._agenda.running())
        if table is None:
            return
        id = table.id
        self._agenda.started([id])
        self._workers.submit(
            Task(VERIFY, lambda app: verify_by_schedule(app, id), [id], is_slow=True)
        )

    # -- what has happened -------------------------------------------------------------------

    def _take_in(self, finished: Sequence[Finished]) -> None:
        """Put the stream tables of finished tasks on the agenda again, with their current catalog
        rows.
        """
        for one in finished:
            self._agenda.finished(list(one.task.ids), _seconds_of_each(one))
            if one.error is not None:
                self._must_look_at |= set(one.task.ids)
        for one in finished:
            ids = list(one.task.ids)
            former = {id: self._agenda.tables.get(id) for id in ids}
            self._update(ids)
            for id in ids:
                if id in self._agenda.tables and self._agenda.tables[id] == former[id]:
                    self._agenda.not_refreshed(id, self._now())
            if one.task.name == VERIFY:
                self._times.may_verify = time.monotonic() + pause_after(
                    one.seconds, self._settings.verify_budget
                )
            if one.task.name == CONFIRM and all(self._found_nothing(id) for id in ids):
                self._idle_seconds = one.seconds
        if finished and time.monotonic() - self._times.noted > 1.0:
            self._times.noted = time.monotonic()
            leadership.note_tick(self._conn, self._context.instance)

    def _found_nothing(self, id: int) -> bool:
        table = self._agenda.tables.get(id)
        return table is None or table.last_action == "NO_DATA"

    def _update(self, ids: Sequence[int]) -> None:
        if ids:
            found = stream_tables.get_all(self._conn, ids)
            self._agenda.update(found.values())
            self._index.update(sources.read_by_each(self._conn, list(ids)))
            self._unsure -= set(ids)
            self._unsure |= {id for id, table in found.items() if _needs_cut(table)}

    def _read_catalog(self, *, look_closely: bool) -> None:
        if look_closely:
            # The DDL may have removed the cause of an error.
            stream_tables.try_errors_now(self._conn)
        tables = stream_tables.every(self._conn)
        row = self._conn.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None, "the server tells its time"
        self._server_time = row[0], time.monotonic()
        self._agenda.load(tables, recorded_graph(self._conn), row[0])
        self._index.load(
            self._agenda.tables, sources.read_by_each(self._conn, [table.id for table in tables])
        )
        self._unsure = {table.id for table in tables if _needs_cut(table)}
        self._times.read = time.monotonic()
        if look_closely:
            self._must_look_at |= self._agenda.tables.keys()
        if tables and not self._has_started_spark:
            # Start early, since it takes seconds.
            self._has_started_spark = True
            self._workers.submit(Task(START, _start_spark))

    def _read_settings(self) -> None:
        """Read the settings again; if one is wrong, keep the former settings."""
        former = self._settings
        try:
            self._given = self._context.read_settings()
            self._settings = live_settings.read(self._conn, self._given)
        except BadSetting as error:
            log.error("settings not read", reason=f"{error.message}. {error.detail}")
            return
        if self._settings == former:
            return
        self._workers.limit = self._settings.max_concurrent_refreshes
        self._capture.use(self._settings)
        log.info("settings read", **_from_database(self._settings))

    def _now(self) -> datetime:
        """Return the time by the server's clock, even if the clock of this machine is changed."""
        time_read, at = self._server_time
        return time_read + timedelta(seconds=time.monotonic() - at)

    # -- applications ------------------------------------------------------------------------

    def _open_app(self, *, reads_wal: bool = False) -> App:
        """Open an application for a thread; with `reads_wal`, the one that reads WAL for all."""
        app = App(
            self._context.dsn,
            self._given,
            self._context.spark,
            shared=Shared() if reads_wal else self._shared,
        )
        app.use(self._settings)
        app.epoch = self._epoch
        app.witness = self._context.witness
        with app.conn.transaction():
            self._epoch.hold(app.conn)
        return app

    def _prepare(self, app: App) -> None:
        """Give an application the settings that were read last."""
        if app.settings is not self._settings:
            app.given = self._given
            app.use(self._settings)

    def _end(self) -> None:
        """Let running refreshes end; roll them back if they take too long, or if leadership was
        lost.
        """
        self._context.systemd.stopping()
        seconds = (
            self._settings.shutdown_timeout.total_seconds() if self._context.is_stopping() else 0.0
        )
        pools = (self._workers, self._desk.workers)
        if not self._wait(pools, seconds):
            log.warning(
                "refreshes rolled back",
                tasks=[task.name for pool in pools for task in pool.running],
            )
            for pool in pools:
                pool.hang_up()
            for pool in pools:
                pool.wait(GRACE)
        for pool in pools:
            pool.close()
        self._capture.stop(GRACE)

    def _wait(self, pools: Sequence[Workers], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._heartbeat.holds() and time.monotonic() < deadline:
            self._heartbeat.note_turn()
            self._context.systemd.alive()
            if all(pool.wait(0.25) for pool in pools):
                return True
        return not any(pool.running for pool in pools)


def _seconds_of_each(finished: Finished) -> float | None:
    """Return how long the refresh of each stream table took. In a quick task, each has an equal
    share of its time.
    """
    if finished.task.name != REFRESH:
        return None
    return finished.seconds if finished.task.is_slow else finished.seconds / len(finished.task.ids)


def _needs_cut(table: StreamTable) -> bool:
    """Return True if the buffers alone do not tell whether a stream table is to be refreshed."""
    return (
        table.frontier is None
        or table.reads_clock is not False
        or table.status != "ACTIVE"
        or table.failed_tries > 0
        or table.planned_by != version_stamp()
    )


@verb
def _refresh(app: App, ids: Sequence[int]) -> None:
    """Refresh these stream tables, by their current catalog rows; the results are recorded there."""
    found = stream_tables.get_all(app.conn, ids)
    refresh_tables(app, refreshable([found[id] for id in ids if id in found]), "SCHEDULER")


@verb
def _start_spark(app: App) -> None:
    app.engine()


def _from_database(settings: Settings) -> Mapping[str, object]:
    names: Iterable[str] = type(settings).model_fields
    return {name: getattr(settings, name) for name in names if settings.origin(name) == "database"}
