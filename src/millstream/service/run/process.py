"""The process of `millstream run`: standby, leader, or waiting for the server, until it is stopped.

    the server cannot be reached     try again, after a pause that grows to five seconds
    it refuses the first connection  the process ends with the error
    another process leads            standby: try to become leader twice a second
    this process has the lock        lead
    the lock, or the server, is lost roll back running refreshes, and start from the beginning

SIGTERM and SIGINT stop it, SIGHUP reads the settings again. A second SIGTERM or SIGINT does not
wait for refreshes.
"""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from threading import current_thread, main_thread
from traceback import format_exc
from types import FrameType
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping
from pyspark.sql import SparkSession

from millstream.catalog.installation import install
from millstream.catalog.processes import leadership
from millstream.catalog.processes.mutex import Mutex
from millstream.errors import Deposed, ServerDown
from millstream.observe import log
from millstream.postgres.connection import Connection, session
from millstream.refresh.refresher import Witness
from millstream.service.run.candidacy import (
    TRY,
    LeaderHeartbeat,
    LeadershipLost,
    end_silent,
    session_names,
    take_over,
)
from millstream.service.run.leader import Leader, LeaderContext
from millstream.service.run.systemd import Systemd
from millstream.service.run.wake_ups import WakeUps
from millstream.settings import Settings

# Seconds between two tries to reach the server: doubled each time, with jitter.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
# A process that has never connected ends after this many refusals by a server that answers: waiting
# does not help against a wrong password or database. A process that has connected before tries
# forever.
REFUSALS = 3


class Process:
    """The process: its identity, and the state that its signals set."""

    def __init__(
        self,
        dsn: str,
        read_settings: Callable[[], Settings],
        spark: SparkSession | None = None,
        witness: Witness | None = None,
    ) -> None:
        self.instance = uuid4()
        self._dsn = make_conninfo(dsn, application_name=session_names(self.instance))
        self._wake_ups = WakeUps()
        self._systemd = Systemd()
        self._context = LeaderContext(
            self._dsn,
            self.instance,
            read_settings,
            self.is_stopping,
            self._wake_ups,
            self._systemd,
            spark,
            witness,
        )
        self._stops = 0
        self._has_served = False

    def run(self) -> None:
        """Work until stopped. Raise errors that waiting does not change, such as a wrong password
        or version.
        """
        pause, refusals = FIRST_PAUSE, 0
        with self._signals() if current_thread() is main_thread() else nullcontext():
            while not self.is_stopping():
                try:
                    self._serve()
                    pause = FIRST_PAUSE
                except (ServerDown, psycopg.OperationalError) as error:
                    refusals = refusals + 1 if not self._has_served and _answers(self._dsn) else 0
                    if refusals >= REFUSALS:
                        raise
                    log.warning(
                        "waiting for the server", reason=str(error).strip(), seconds=round(pause, 2)
                    )
                    self._systemd.status("waiting for the server")
                    self._rest(pause * random.uniform(0.5, 1.0))
                    pause = min(2 * pause, LONGEST_PAUSE)
                except (LeadershipLost, Deposed):
                    log.warning("no longer the leader")
                except Exception as error:
                    if not self._has_served:
                        raise
                    # Continue after any other error: a service must not end.
                    log.error(
                        "begins again",
                        reason=f"{type(error).__name__}: {error}",
                        traceback=format_exc(),
                    )
                    self._rest(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
        self._wake_ups.close()
        log.info("stopped")

    def stop(self) -> None:
        """Stop as after a first SIGTERM. May be called from any thread."""
        self._stops += 1
        self._wake_ups.wake("stop")

    def is_stopping(self) -> bool:
        """Return True once a signal has asked to stop."""
        return self._stops > 0

    # -- candidate and leader ----------------------------------------------------------------

    def _serve(self) -> None:
        """Wait as a standby for the lock, then lead."""
        with (
            session(self._dsn) as conn,
            Mutex(self._dsn, application_name=session_names(self.instance)) as lock,
        ):
            install.install(conn)
            install.require(conn)
            self._has_served = True
            # A session that locks our tables must not end the service.
            conn.execute("SET lock_timeout = '1s'")
            try:
                self._stand_by(conn, lock)
            finally:
                _withdraw(conn, self)

    def _stand_by(self, conn: Connection, lock: Mutex) -> None:
        self._register(conn, lock)
        said = False
        while not self.is_stopping():
            with lock.exclusive("leader") as is_ours:
                if is_ours:
                    self._lead(conn, lock)
                    return
                if not said:
                    log.info("standing by", leader=lock.holder("leader"))
                    self._systemd.ready("standby")
                    said = True
            end_silent(conn)
            self._systemd.alive()
            self._rest(TRY)

    def _lead(self, conn: Connection, lock: Mutex) -> None:
        # The session of the lock may have been opened again while the process was a standby.
        self._register(conn, lock)
        backend = lock.backend_pid()
        heartbeat = LeaderHeartbeat(lock, lambda: self._wake_ups.wake("lost"))
        heartbeat.start()
        try:
            epoch = take_over(conn, self.instance, backend, heartbeat)
            Leader(self._context, conn, epoch, heartbeat).lead()
        finally:
            heartbeat.stop()

    def _register(self, conn: Connection, lock: Mutex) -> None:
        own = leadership.Registration(
            self.instance,
            os.getpid(),
            socket.gethostname(),
            version("millstream"),
            lock.backend_pid(),
        )
        leadership.register(conn, own)

    # -- signals -----------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        former = {
            number: signal.signal(number, self._told_to_stop)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        former[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._reload)
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _told_to_stop(self, number: int, _frame: FrameType | None) -> None:
        if self._stops > 0:
            # A second signal means not to wait; the server rolls back running transactions.
            os._exit(128 + number)
        self.stop()

    def _reload(self, _number: int, _frame: FrameType | None) -> None:
        self._wake_ups.wake("settings")

    def _rest(self, seconds: float) -> None:
        if not self.is_stopping():
            self._wake_ups.sleep(seconds)


def _withdraw(conn: Connection, process: Process) -> None:
    try:
        leadership.withdraw(conn, process.instance)
    except psycopg.Error as error:
        # The next process removes the row.
        log.debug("not withdrawn", reason=str(error))


def _answers(dsn: str) -> bool:
    """Return True if the server answers, so that it refuses for another reason than being down."""
    return PGconn.ping(dsn.encode()) == Ping.OK
