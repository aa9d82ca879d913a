"""Sleep until a time, a notification of the server, a signal, or a message of another thread."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import Literal

from millstream.postgres.connection import Connection

CHANNEL = "millstream_wake"
# The payloads that are stored. Any role that may connect can send others; these are dropped at
# once.
NOTIFIED = frozenset(["request", "settings", "ddl", "stream_tables", "sources", "wal"])

Word = Literal["", "stop", "lost", "request", "settings", "ddl", "stream_tables", "sources", "wal"]


class _End:
    """One end of a pipe. It remains open while it is in use, since after the close its number may
    belong to another file.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_blocking(descriptor, False)

    def __del__(self) -> None:
        os.close(self.descriptor)


class WakeUps:
    """Everything that can wake one thread. `wake` may be called from any thread and from a signal
    handler, also after `close`.
    """

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self._reading: _End | None = _End(reading)
        self._writing: _End | None = _End(writing)
        self._words = set[str]()

    def listen(self, conn: Connection) -> None:
        """Also wake by notifications on our channel; those received during a statement are queued."""
        conn.add_notify_handler(lambda notification: self._take(notification.payload))
        conn.execute(f"LISTEN {CHANNEL}")

    def wake(self, word: Word = "") -> None:
        """Wake the sleeping thread, or end its next sleep at once; pass it a word, if given."""
        self._words.add(word)
        # No lock, since a signal may arrive while the same thread has it. An end in use is closed
        # afterwards.
        writing = self._writing
        if writing is not None:
            # If the pipe is full, the thread wakes anyway; if it is closed, no thread sleeps.
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(writing.descriptor, b"\0")

    def sleep(self, seconds: float, conn: Connection | None = None) -> set[str]:
        """Sleep for at most this time; return the notifications.

        Raise OperationalError if the server is lost.
        """
        reading = self._reading
        if reading is None:
            raise ValueError("the wake-ups are closed")
        if not self._words:
            ends = [reading.descriptor, *([conn.fileno()] if conn is not None else [])]
            ready, _, _ = select.select(ends, [], [], max(0.0, seconds))
            if conn is not None and conn.fileno() in ready:
                self._take_notifications(conn)
        # The pipe is empty.
        with suppress(BlockingIOError):
            while os.read(reading.descriptor, 4096):
                pass
        words = self._words.copy()
        self._words -= words
        return words - {""}

    def _take_notifications(self, conn: Connection) -> None:
        conn.pgconn.consume_input()
        while notification := conn.pgconn.notifies():
            self._take(notification.extra.decode(errors="replace"))

    def _take(self, word: str) -> None:
        if word in NOTIFIED:
            self._words.add(word)

    def close(self) -> None:
        """Close the pipe."""
        self._reading = self._writing = None
