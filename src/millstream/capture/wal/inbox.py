"""Queue of transactions and markers that were received and are not stored yet.

Its size is bounded: the reader waits while it is full, and the server's flow control does the rest.
There can be hundreds of keepalives per second, so a marker directly after a marker replaces it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from threading import Condition, Event

from millstream.capture.wal.messages.transactions import Transaction

# Bytes of memory per transaction in addition to its messages: a million small transactions count
# too.
OVERHEAD = 1024


@dataclass(frozen=True)
class Marker:
    """A position before which everything has been received."""

    lsn: int


class Inbox:
    """The queue between the thread that reads and the thread that stores."""

    def __init__(self, budget: int, stop: Event) -> None:
        self.budget = budget
        self._stop = stop
        self.size = 0
        self._items: deque[Transaction | Marker] = deque()
        self._changes = 0
        self._urgent = False
        self.closed = False
        self._changed = Condition()

    def put(self, transaction: Transaction) -> None:
        """Add a transaction. Wait while the queue is full."""
        with self._changed:
            while self.size >= self.budget and not self.closed and not self._stop.is_set():
                self._changed.wait(0.1)
            self._items.append(transaction)
            self.size += transaction.changes.size + OVERHEAD
            self._changes += transaction.changes.count
            # Somebody may wait for a message.
            self._urgent = self._urgent or bool(transaction.messages)
            self._changed.notify_all()

    def put_marker(self, lsn: int) -> None:
        """Add a marker, in place of the last item if that is a marker too."""
        with self._changed:
            if self._items and isinstance(self._items[-1], Marker):
                self._items.pop()
            self._items.append(Marker(lsn))
            self._changed.notify_all()

    def take(self, *, changes: int, linger: float, wait: float) -> list[Transaction | Marker]:
        """Return all items: wait for the first, then up to `linger` for `changes` changes.

        Return [] when closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._items or self.closed, wait)
            until = time.monotonic() + linger
            while not self._is_due(changes) and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            items = [] if self.closed else list(self._items)
            self._items.clear()
            self.size = self._changes = 0
            self._urgent = False
            self._changed.notify_all()
            return items

    def _is_due(self, changes: int) -> bool:
        return self.closed or self._urgent or self._changes >= changes

    def close(self) -> None:
        """End all waiting and drop the items, which the server will send again."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
