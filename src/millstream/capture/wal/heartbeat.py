"""A message sent through the log now and then, to see it come back; and the barrier, which is the same for one reader.

A transaction that a snapshot sees has its commit in the log before any message that is written afterwards. So when all
before the message is durable in the buffers, all that the snapshot sees is there.

Any sign of life counts, not only the message itself: under a flood of log that concerns nobody it may take long to
come, while keepalives tell that all is well.
"""

from __future__ import annotations

import time
from threading import Event, Thread

import psycopg

from millstream.capture.wal.connection import hang_up
from millstream.capture.wal.health import Health
from millstream.errors import ServerDown
from millstream.frontier import lsn
from millstream.postgres.connection import Connection, session

PREFIX = "millstream"


def barrier(conn: Connection) -> int:
    """Write a message into the log, on disk; returns its position. Call it outside a transaction."""
    # The walsender sends what is on disk: commits before this one get there with it.
    with conn.transaction():
        conn.execute("SET LOCAL synchronous_commit = on")
        written = conn.execute("SELECT pg_logical_emit_message(true, %s, '')::text", (PREFIX,)).fetchall()[0][0]
    return lsn.parse(written)


class Heartbeat:
    """Sends one when the last has come back: over a connection and from a thread of its own, which may hang."""

    def __init__(self, dsn: str, health: Health, interval: float, timeout: float) -> None:
        self.dsn = dsn
        self.health = health
        self.interval = interval
        self.timeout = timeout
        self.sent_at = time.monotonic()
        self.position = 0
        self._conn: Connection | None = None
        self._ended = Event()
        self._thread = Thread(target=self._run, name="millstream heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._ended.set()
        if self._conn is not None:
            hang_up(self._conn)
        self._thread.join(self.interval)

    def is_lost(self) -> bool:
        """Has the last one not come back, and nothing else shown life since?"""
        if self.health.durable >= self.position:
            return False
        return time.monotonic() - max(self.sent_at, self.health.life_at) > self.timeout

    def _run(self) -> None:
        while not self._ended.wait(self.interval):
            if self.health.durable >= self.position:
                self._send()
        self._close()

    def _send(self) -> None:
        try:
            self._conn = self._conn or session(self.dsn)
            self.position, self.sent_at = barrier(self._conn), time.monotonic()
        except (psycopg.OperationalError, ServerDown):
            # The stream's own trouble, if it is one, is found on the stream.
            self._close()

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
