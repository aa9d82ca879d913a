"""Follow the log for the refreshes of a process: read it where nobody else does, and tell when it has come far enough.

One process reads from the slot. Another one that refreshes needs only to know how far that has come: the cursor is in
the catalog. Whoever finds that nobody reads, reads.
"""

from __future__ import annotations

import time

import psycopg

from millstream.capture.wal import slot as slot_of
from millstream.capture.wal.heartbeat import barrier
from millstream.capture.wal.pipeline import Options, Pipeline
from millstream.catalog import slots
from millstream.errors import MillstreamError, ServerDown, SlotLost, WalBehind, WalTakenOver
from millstream.observe import log
from millstream.postgres.connection import Connection, session
from millstream.settings import Settings

# Seconds that a cut waits for the log.
PATIENCE = 10.0
# Seconds between two looks at another process's cursor.
_LOOK = 0.02

_ACTIVE = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"


class Follower:
    """The log as a process follows it; a pipeline of its own only where that is needed."""

    def __init__(self, dsn: str, settings: Settings, *, patience: float = PATIENCE) -> None:
        self.dsn = dsn
        self.patience = patience
        self.pipeline: Pipeline | None = None
        self._options = Options(
            heartbeat_interval=settings.heartbeat_interval.total_seconds(),
            heartbeat_timeout=settings.heartbeat_timeout.total_seconds(),
        )
        self._conn: Connection | None = None

    def session(self) -> Connection:
        """A session that sees in the buffers all that was committed before this was called."""
        conn = self._beside()
        try:
            self._wait(conn, barrier(conn))
        except psycopg.OperationalError as error:
            raise ServerDown.lost(str(error)) from error
        return conn

    def follow(self) -> None:
        """Begin to read the log here, unless somebody does, or there is none to read."""
        conn = self._beside()
        name = slot_of.name_of(conn)
        if self.pipeline is not None and self.pipeline.state == "FAILED":
            self._end_failed(self.pipeline)
        if self.pipeline is None and slots.get(conn, name) is not None:
            row = conn.execute(_ACTIVE, (name,)).fetchone()
            if row is None:
                raise SlotLost.because(name, "It was dropped.")
            if not row[0]:
                self._start(name)

    def _start(self, name: str) -> None:
        log.info("reading the log", slot=name)
        self.pipeline = Pipeline(self.dsn, name, self._options)
        self.pipeline.start()

    def _end_failed(self, failed: Pipeline) -> None:
        """Raises what it has ended by, but where another process has taken over: then that one reads."""
        self.pipeline = None
        try:
            failed.stop()
        except WalTakenOver as error:
            log.info("another process reads the log", slot=failed.slot, reason=error.detail)

    def _wait(self, conn: Connection, position: int) -> None:
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            self.follow()
            if self._has_reached(conn, position, deadline - time.monotonic()):
                return
        reason = self.pipeline.health.reason if self.pipeline else "Another process reads it."
        raise WalBehind.after(self.patience, reason or "There is much to read.")

    def _has_reached(self, conn: Connection, position: int, seconds: float) -> bool:
        if self.pipeline is not None:
            try:
                return self.pipeline.wait(position, min(seconds, 1.0))
            except MillstreamError:
                return False  # `follow` tells why.
        slot = slots.get(conn, slot_of.name_of(conn))
        if slot is None:
            raise SlotLost.because(slot_of.name_of(conn), "It is not in the catalog.")
        time.sleep(_LOOK)
        return slot.cursor >= position

    def _beside(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = session(self.dsn)
        return self._conn

    def stop(self) -> None:
        """Read no more; what is not durable is sent again to whoever reads next."""
        pipeline, self.pipeline = self.pipeline, None
        if pipeline is not None:
            try:
                pipeline.stop()
            except MillstreamError as error:
                log.info("the log had ended", slot=pipeline.slot, reason=error.message)

    def close(self) -> None:
        """Let go of everything."""
        self.stop()
        if self._conn is not None:
            self._conn.close()
