"""Sleep until something happens: a time, a notification of the server, a signal, or a word of another thread."""

from __future__ import annotations

import os
import select
from collections import deque
from contextlib import suppress

from millstream.postgres.connection import Connection

CHANNEL = "millstream_wake"


class WakeUps:
    """What wakes one thread. `wake` may be called from any thread and from a signal handler."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        for end in (self._reading, self._writing):
            os.set_blocking(end, False)
        self._words = deque[str]()

    def listen(self, conn: Connection) -> None:
        """Let notifications on our channel wake too. Those that come while a statement runs are kept."""
        conn.add_notify_handler(lambda notification: self._words.append(notification.payload))
        conn.execute(f"LISTEN {CHANNEL}")

    def wake(self, word: str = "") -> None:
        """Wake the thread that sleeps, or the next that wants to."""
        self._words.append(word)
        with suppress(BlockingIOError):
            # Where the pipe is full, it wakes anyway.
            os.write(self._writing, b"\0")

    def sleep(self, seconds: float, conn: Connection | None = None) -> set[str]:
        """Sleep for at most so long; return the words that came. Raise OperationalError where the server is gone."""
        if not self._words:
            ends = [self._reading, *([conn.fileno()] if conn is not None else [])]
            ready, _, _ = select.select(ends, [], [], max(0.0, seconds))
            if conn is not None and conn.fileno() in ready:
                self._take_notifications(conn)
        with suppress(BlockingIOError):
            while os.read(self._reading, 4096):
                pass
        words = set[str]()
        while self._words:
            words.add(self._words.popleft())
        return words

    def _take_notifications(self, conn: Connection) -> None:
        conn.pgconn.consume_input()
        while notification := conn.pgconn.notifies():
            self._words.append(notification.extra.decode())

    def close(self) -> None:
        """Close the pipe."""
        for end in (self._reading, self._writing):
            os.close(end)
