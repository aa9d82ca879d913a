"""A frontier is a snapshot: which transactions have been seen, and which have not.

    xmin:xmax:xip,...      every transaction below xmin is seen (or was rolled back),
                           none at or above xmax, none of those listed in xip

A position in WAL would not do: a transaction that wrote before it and commits after it has not
been seen. The text form is PostgreSQL's own `pg_snapshot`.

>>> s = Snapshot.parse("10:20:12,15")
>>> s.sees(9), s.sees(11), s.sees(12), s.sees(20)
(True, True, False, False)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Snapshot:
    """The transactions visible at one moment, as PostgreSQL's `pg_snapshot`."""

    xmin: int
    xmax: int
    running: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.xmin > self.xmax:
            raise ValueError(f"snapshot's xmin {self.xmin} is above its xmax {self.xmax}")
        if any(not self.xmin <= xid < self.xmax for xid in self.running):
            raise ValueError(f"snapshot lists a transaction outside {self.xmin}..{self.xmax}")
        if list(self.running) != sorted(set(self.running)):
            raise ValueError("snapshot's running transactions are not in order")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read PostgreSQL's text form."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """Return True if this transaction had ended when the snapshot was taken."""
        return xid < self.xmin or (xid < self.xmax and xid not in self.running)

    def including(self, xid: int) -> Snapshot:
        """Return a snapshot that also sees this transaction: our own, which commits together with
        the frontier.
        """
        if self.sees(xid):
            return self
        running = tuple(other for other in self.running if other != xid)
        if xid < self.xmax:
            return Snapshot(self.xmin, self.xmax, running)
        # Transactions that began after the snapshot and before this one are not seen.
        return Snapshot(self.xmin, xid + 1, (*running, *range(self.xmax, xid)))

    def reaches(self, other: Snapshot) -> bool:
        """Return True if it sees everything that `other` sees: it was taken at the same time or
        later.
        """
        return (
            self.xmax >= other.xmax
            and all(other.sees(xid) is False for xid in self.running if xid < other.xmax)
            and self.xmin >= other.xmin
        )

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.running))}"


@dataclass(frozen=True)
class Slice:
    """The changes of transactions seen by `end` and not by `start`."""

    start: Snapshot
    end: Snapshot

    def __post_init__(self) -> None:
        if not self.end.reaches(self.start):
            raise ValueError(f"slice runs backwards: {self.start} .. {self.end}")

    def holds(self, xid: int) -> bool:
        """Return True if the changes of this transaction belong to the slice."""
        return self.end.sees(xid) and not self.start.sees(xid)

    def __str__(self) -> str:
        return f"{self.start} .. {self.end}"
