"""Open the replication connection: libpq's replication functions, called through psycopg.

Settings that affect how values are printed are set in the startup packet, as in all our sessions:
otherwise a role's own DateStyle would be used. libpq does not allow two threads on one connection,
so each call holds a lock; waiting for the server happens outside of it.
"""

from __future__ import annotations

import select
import time
from threading import Lock

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from millstream.capture.wal.messages.protocol import status
from millstream.errors import MillstreamError, ServerDown, SlotLost, WalBroken
from millstream.frontier import lsn
from millstream.postgres.composed import Printed
from millstream.postgres.connection import Connection, pin_newer, pinned, without_password

# Half-open connections are found by the kernel too, if it is asked to look.
_SOCKET = {
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# The server ends a connection that has not answered for so long.
SENDER_TIMEOUT = 60.0
# How many messages are taken at once: between two such helpings the connection is free for our
# answers.
_HELPING = 4096
# Slot in use; all else that START_REPLICATION refuses is final.
_IN_USE = "55006"


def replication(dsn: str, application_name: str, **settings: str) -> Connection:
    """Open a session for replication commands, which also accepts SQL without parameters."""
    sender_timeout = f"{SENDER_TIMEOUT:.0f}s"
    given = pinned(
        dsn,
        version=0,
        application_name=application_name,
        wal_sender_timeout=sender_timeout,
        **settings,
    )
    conninfo = make_conninfo(
        given, replication="database", application_name=application_name, **_SOCKET
    )
    try:
        conn = psycopg.connect(conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        raise ServerDown.unreachable(without_password(dsn), str(error)) from error
    pin_newer(conn)
    return conn


class Stream:
    """The messages of a slot from a position on."""

    def __init__(
        self, dsn: str, slot: str, publication: str, start: int, *, in_chunks: bool = False
    ) -> None:
        self.slot = slot
        self.received_at = time.monotonic()
        self._lock = Lock()
        self._conn = replication(dsn, f"millstream log {slot}")
        self._pgconn: PGconn = self._conn.pgconn
        try:
            self._start(publication, start, in_chunks)
        except BaseException:
            self.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)

    def _start(self, publication: str, start: int, in_chunks: bool) -> None:
        version = sql.SQL("proto_version '2', streaming 'on'" if in_chunks else "proto_version '1'")
        names = sql.Literal(sql.Identifier(publication).as_string())
        # A position is not a string here.
        command = sql.SQL(
            "START_REPLICATION SLOT {} LOGICAL {} ({}, messages 'true', publication_names {})"
        ).format(sql.Identifier(self.slot), Printed(lsn.printed(start)), version, names)
        result = self._pgconn.exec_(command.as_string().encode())
        if result.status != ExecStatus.COPY_BOTH:
            raise self._refused(result)
        # A status that cannot be sent must not hold the lock.
        self._pgconn.nonblocking = 1

    def receive(self, seconds: float) -> list[bytes]:
        """Return the frames that are received within this time, possibly none."""
        frames = self._take()
        if frames or not self._poll.poll(seconds * 1000):
            return frames
        with self._lock:
            try:
                self._pgconn.consume_input()
            except psycopg.OperationalError as error:
                raise WalBroken.off(self.slot, str(error)) from error
        return self._take()

    def _take(self) -> list[bytes]:
        frames: list[bytes] = []
        with self._lock:
            for _ in range(_HELPING):
                try:
                    size, frame = self._pgconn.get_copy_data(1)
                except psycopg.OperationalError as error:
                    raise WalBroken.off(self.slot, str(error)) from error
                if size == 0:
                    break
                if size < 0:
                    raise self._refused(self._pgconn.get_result())
                frames.append(bytes(frame))
        if frames:
            self.received_at = time.monotonic()
        return frames

    def _refused(self, result: PGresult | None) -> MillstreamError:
        """Convert the server's error to one of ours, which may be transient or not."""
        message = self._pgconn.get_error_message() if result is None else result.get_error_message()
        state = None if result is None else result.error_field(DiagnosticField.SQLSTATE)
        code = state.decode() if state else ""
        # 42704: no such slot, or no such publication. 55000, 58P01: the slot or its log is gone.
        if code in ("42704", "55000", "58P01"):
            return SlotLost.because(self.slot, message)
        return WalBroken.off(self.slot, message or "The server has ended the stream.")

    def send(self, position: int, *, ask: bool = False) -> None:
        """Send the durable position to the server; what the socket does not accept now is sent with
        the next one.
        """
        with self._lock:
            try:
                self._pgconn.put_copy_data(status(position, ask=ask))
                self._pgconn.flush()
            except psycopg.OperationalError as error:
                raise WalBroken.off(self.slot, str(error)) from error

    def close(self) -> None:
        """End it, at once."""
        with self._lock:
            self._conn.close()
