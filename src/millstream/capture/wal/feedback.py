"""Acknowledge the durable WAL position to the server, from a thread of its own.

A walsender that hears nothing for `wal_sender_timeout` ends the connection, and everything in
flight is sent again. So the status is sent by the clock, however busy the other threads are. The
position never decreases and is never zero: some servers would rewind the slot. After a silence the
status asks the server to answer, as a proof of life.
"""

from __future__ import annotations

import time
from threading import Event, Lock, Thread
from typing import Protocol

from millstream.errors import WalBroken
from millstream.observe import log
from millstream.observe.failpoint import failpoint


class StatusLine(Protocol):
    """The connection that a status is sent over."""

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
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Send the last position and end the thread."""
        self._ended = True
        self._wake.set()
        self._thread.join()

    def advance(self, position: int) -> None:
        """Note that everything before this position is durable."""
        with self._lock:
            if position <= self._position:
                return
            self._position = position
        self._wake.set()

    def reply(self) -> None:
        """Answer the server's request for a status."""
        self._wake.set()

    def _run(self) -> None:
        try:
            while not self._ended:
                self._wake.wait(self.interval)
                self._wake.clear()
                self._send()
        except WalBroken as error:
            # The reader runs into the same error, and handles it.
            log.debug("status not sent", reason=error.detail)

    def _send(self) -> None:
        with self._lock:
            position = self._position
        silent = time.monotonic() - self.line.received_at > self.interval
        self.line.send(position, ask=silent)
        if position > self.sent:
            self.sent = position
            failpoint("wal_acknowledged")
