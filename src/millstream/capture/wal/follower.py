"""Wait, before a refresh reads its buffers, until WAL has been read far enough; read it here if
nobody else does.

One process reads from the slot. Another process that refreshes only needs its cursor, which is in
the catalog. A process that finds the slot without a reader starts a pipeline of its own.
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

# Seconds that a cut waits for WAL.
PATIENCE = 10.0
# Seconds between two reads of another process's cursor.
_LOOK = 0.02

_ACTIVE = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"


class Follower:
    """A process's view of WAL capture, with a pipeline of its own only if no other process reads.

    With `reader`, another follower of the same process, it never has one: it waits for that one's.
    """

    def __init__(
        self,
        dsn: str,
        settings: Settings,
        *,
        patience: float = PATIENCE,
        reader: Follower | None = None,
    ) -> None:
        self.dsn = dsn
        self.patience = patience
        self.pipeline: Pipeline | None = None
        self._reader = reader
        self._options = _options(settings)
        self._conn: Connection | None = None

    def use(self, settings: Settings) -> None:
        """Use other settings for the next pipeline; one that runs keeps those that it was started
        with.
        """
        self._options = _options(settings)

    def session(self) -> Connection:
        """Return a session that sees, in the buffers, everything committed before this call.

        Or raise WalBehind.
        """
        conn = self._beside()
        try:
            self._wait(conn, barrier(conn))
        except psycopg.OperationalError as error:
            raise ServerDown.lost(str(error)) from error
        return conn

    def follow(self) -> None:
        """Start reading WAL in this process, unless another process does or there is no slot."""
        if self._reader is not None:
            return
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
        log.info("reading WAL", slot=name)
        self.pipeline = Pipeline(self.dsn, name, self._options)
        self.pipeline.start()

    def _end_failed(self, failed: Pipeline) -> None:
        """Raise the error that ended the pipeline, except when another process has taken over the
        slot.
        """
        self.pipeline = None
        try:
            failed.stop()
        except WalTakenOver as error:
            log.info("another process reads WAL", slot=failed.slot, reason=error.detail)

    def _wait(self, conn: Connection, position: int) -> None:
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            self.follow()
            if self._has_reached(conn, position, deadline - time.monotonic()):
                return
        pipeline = self._reading()
        reason = pipeline.health.reason if pipeline else "Another process reads WAL."
        raise WalBehind.after(self.patience, reason or "WAL capture lags behind.")

    def _has_reached(self, conn: Connection, position: int, seconds: float) -> bool:
        pipeline = self._reading()
        if pipeline is not None:
            try:
                return pipeline.wait(position, min(seconds, 1.0))
            except MillstreamError:
                # `follow` raises the reason, here or in the thread that reads.
                time.sleep(_LOOK)
                return False
        slot = slots.get(conn, slot_of.name_of(conn))
        if slot is None:
            raise SlotLost.because(slot_of.name_of(conn), "It is not in the catalog.")
        time.sleep(_LOOK)
        return slot.cursor >= position

    def _reading(self) -> Pipeline | None:
        """Return the pipeline of this process, while it reads."""
        pipeline = self._reader.pipeline if self._reader is not None else self.pipeline
        return pipeline if pipeline is not None and pipeline.state != "FAILED" else None

    def sessions(self) -> list[Connection]:
        """Return the session that waits, if there is one."""
        return [self._conn] if self._conn is not None else []

    def _beside(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = session(self.dsn)
        return self._conn

    def stop(self) -> None:
        """Stop reading. The server sends what is not durable again, to the next reader."""
        pipeline, self.pipeline = self.pipeline, None
        if pipeline is not None:
            try:
                pipeline.stop()
            except MillstreamError as error:
                log.info("WAL capture had ended", slot=pipeline.slot, reason=error.message)

    def close(self) -> None:
        """Stop reading and close the session."""
        self.stop()
        if self._conn is not None:
            self._conn.close()


def _options(settings: Settings) -> Options:
    return Options(
        heartbeat_interval=settings.heartbeat_interval.total_seconds(),
        heartbeat_timeout=settings.heartbeat_timeout.total_seconds(),
    )
