"""Divide the due graphs among the workers: quick graphs share a worker, each slow graph has its
own.

A worker refreshes its stream tables in one cut if possible, and the graphs of a cut wait for each
other. So only graphs that are known to be quick share a worker. Slow graphs never take all workers:
one is reserved for the others.

>>> from datetime import UTC, datetime
>>> from millstream.testing.catalog_rows import stream_table
>>> def due(id: int, seconds: float) -> Due:
...     return Due((stream_table(id),), datetime(2024, 1, 1, tzinfo=UTC), seconds)
>>> quick, slow = [due(id, 0.1) for id in (1, 2, 3)], [due(id, 9.0) for id in (4, 5)]
>>> [[id for one in batch for id in one.ids] for batch in batches([*quick, *slow], workers=2, busy_with_slow=0, free=2)]
[[1, 2, 3], [4]]
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.agenda import Due

# A graph that is expected to take more seconds has a worker of its own.
QUICK = 0.5
# The graphs that share a worker are expected to take at most this many seconds together.
TOGETHER = 2.0

Batch = list[Due]


def batches(due: Sequence[Due], *, workers: int, busy_with_slow: int, free: int) -> list[Batch]:
    """Return the graphs for each free worker, most overdue first; the others remain due."""
    chosen = list[Batch]()
    slow_allowed = max(1, workers - 1) - busy_with_slow
    filling: Batch | None = None
    for one in due:
        if is_slow(one):
            if slow_allowed > 0 and len(chosen) < free:
                slow_allowed -= 1
                chosen.append([one])
        elif (
            filling is not None
            and sum(other.seconds for other in filling) + one.seconds <= TOGETHER
        ):
            filling.append(one)
        elif len(chosen) < free:
            filling = [one]
            chosen.append(filling)
    return chosen


def is_slow(due: Due) -> bool:
    """Return True if a graph is expected to keep its worker busy for longer than others should
    wait.
    """
    return due.seconds > QUICK
