"""Messages written into WAL: a heartbeat, sent regularly to see it come back, and the barrier of a
refresh.

The commit of a transaction that a snapshot sees is in WAL before any message written afterwards. So
when everything before the message is durable in the buffers, everything that the snapshot sees is
there.

Any sign of life counts, not only the message itself: under a flood of WAL of other tables the
message may take long to arrive, while keepalives prove that the connection works.
"""

from __future__ import annotations

import time
from threading import Event, Thread

import psycopg

from millstream.capture.wal.health import Health
from millstream.errors import ServerDown
from millstream.frontier import lsn
from millstream.postgres.connection import Connection, hang_up, session

PREFIX = "millstream"


def barrier(conn: Connection) -> int:
    """Write a message into WAL, flush it, and return its position.

    Call it outside a transaction.
    """
    # The walsender sends only flushed WAL; this flush includes all earlier commits.
    with conn.transaction():
        conn.execute("SET LOCAL synchronous_commit = on")
        written = conn.execute(
            "SELECT pg_logical_emit_message(true, %s, '')::text", (PREFIX,)
        ).fetchall()[0][0]
    return lsn.parse(written)


def flushed(conn: Connection) -> int:
    """Return the position up to which WAL is flushed, and so can be sent."""
    return lsn.parse(conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()[0][0])


class SlotHeartbeat:
    """Sends a message when the last one has come back; its connection and thread are its own, since
    they may hang.
    """

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
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._conn is not None:
            hang_up(self._conn)
        self._thread.join(self.interval)

    def is_lost(self) -> bool:
        """Return True if the last message has not come back in time and there was no other sign of
        life.
        """
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
            # If the stream has failed too, its reader finds out.
            self._close()

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
