"""Which graphs share a worker."""

from __future__ import annotations

from datetime import UTC, datetime

from millstream.scheduler.agenda import Due
from millstream.scheduler.batching import batches
from millstream.testing.catalog_rows import stream_table

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


def due(id: int, seconds: float) -> Due:
    return Due((stream_table(id),), NOON, seconds)


def ids(due: list[Due], *, workers: int = 4, slow: int = 0, free: int = 4) -> list[list[int]]:
    chosen = batches(due, workers=workers, busy_with_slow=slow, free=free)
    return [[id for one in batch for id in one.ids] for batch in chosen]


def test_quick_ones_share_a_worker_up_to_two_seconds() -> None:
    assert ids([due(id, 0.5) for id in range(1, 7)]) == [[1, 2, 3, 4], [5, 6]]


def test_a_slow_one_is_alone_and_the_quick_ones_behind_it_do_not_wait() -> None:
    assert ids([due(1, 60.0), due(2, 0.1), due(3, 60.0), due(4, 0.1)]) == [[1], [2, 4], [3]]


def test_slow_ones_leave_one_worker_to_the_others() -> None:
    slow = [due(id, 60.0) for id in range(1, 6)]
    assert ids(slow) == [[1], [2], [3]]
    assert ids([*slow, due(9, 0.1)], slow=3, free=1) == [[9]]


def test_with_one_worker_slow_and_quick_take_turns_by_their_deadlines() -> None:
    assert ids([due(1, 60.0), due(2, 0.1)], workers=1, free=1) == [[1]]
    assert ids([due(2, 0.1), due(1, 60.0)], workers=1, free=1) == [[2]]
    assert ids([due(1, 60.0)], workers=1, free=0) == []
