"""What was received and is not stored yet, in order: transactions, and markers behind them.

Bounded: the reader waits while it is full, and the server's own flow control does the rest. Keepalives come by the
hundred in a second; a marker right behind a marker takes its place.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from threading import Condition, Event

from millstream.capture.wal.messages.transactions import Transaction

# What a transaction takes besides its messages: a million small ones are not to be had for nothing.
OVERHEAD = 1024


@dataclass(frozen=True)
class Marker:
    """Everything before this position has been received."""

    lsn: int


class Inbox:
    """Between the reader and the store."""

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
        """Add a transaction; waits while there is too much."""
        with self._changed:
            while self.size >= self.budget and not self.closed and not self._stop.is_set():
                self._changed.wait(0.1)
            self._items.append(transaction)
            self.size += transaction.changes.size + OVERHEAD
            self._changes += transaction.changes.count
            # Somebody may wait for a message.
            self._urgent = self._urgent or bool(transaction.messages)
            self._changed.notify_all()

    def mark(self, lsn: int) -> None:
        """Add a marker behind all that was put; in the place of the last one if nothing came between."""
        with self._changed:
            if self._items and isinstance(self._items[-1], Marker):
                self._items.pop()
            self._items.append(Marker(lsn))
            self._changed.notify_all()

    def take(self, *, changes: int, linger: float, wait: float) -> list[Transaction | Marker]:
        """All that is there: waits for something, then a little longer for the batch to fill. Empty when closed."""
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
        """Nobody waits any longer; what is in it is dropped, and will be sent again."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
