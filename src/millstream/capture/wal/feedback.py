"""Tell the server how far the log is durable: from a thread of its own, however busy the others are.

A sender that hears nothing for `wal_sender_timeout` ends the connection, and what was on its way is sent again; so the
status goes out by the clock and not by the rows. It never goes back and is never zero: either would rewind the slot
on servers that allow it. When nothing has come for a while the server is asked to answer, as a proof of life.
"""

from __future__ import annotations

import time
from threading import Event, Lock, Thread
from typing import Protocol

from millstream.errors import WalBroken
from millstream.observe import log
from millstream.observe.failpoint import failpoint


class StatusLine(Protocol):
    """What a status is sent over."""

    received_at: float

    def send(self, position: int, *, ask: bool = False) -> None: ...


class Feedback:
    """Sends the position every `interval` seconds, and at once when it moves or the server asks."""

    def __init__(self, line: StatusLine, position: int, interval: float) -> None:
        self.line = line
        self.interval = interval
        self.sent = 0
        self._position = position
        self._lock = Lock()
        self._wake = Event()
        self._ended = False
        self._thread = Thread(target=self._run, name="millstream feedback", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Send what is to be said, and end."""
        self._ended = True
        self._wake.set()
        self._thread.join()

    def advance(self, position: int) -> None:
        """All before this is durable."""
        with self._lock:
            if position <= self._position:
                return
            self._position = position
        self._wake.set()

    def reply(self) -> None:
        """The server wants to hear from us."""
        self._wake.set()

    def _run(self) -> None:
        try:
            while not self._ended:
                self._wake.wait(self.interval)
                self._wake.clear()
                self._send()
        except WalBroken as error:
            # The reader meets the same trouble, and deals with it.
            log.debug("status not sent", reason=error.detail)

    def _send(self) -> None:
        with self._lock:
            position = self._position
        silent = time.monotonic() - self.line.received_at > self.interval
        self.line.send(position, ask=silent)
        if position > self.sent:
            self.sent = position
            failpoint("log_acknowledged")
