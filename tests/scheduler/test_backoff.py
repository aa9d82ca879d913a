"""How long the scheduler waits after a failed refresh."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from millstream.scheduler.backoff import FIRST, LONGEST, LONGEST_SKIP, delay, random_delay


def test_each_wait_is_twice_as_long_as_the_one_before_up_to_a_limit() -> None:
    waits = [delay(tries, jitter=1.0) for tries in range(1, 15)]
    assert waits[0] == FIRST
    assert all(later == min(2 * earlier, LONGEST) for earlier, later in pairwise(waits))
    assert waits[-1] == LONGEST


def test_a_wait_is_never_shorter_than_half_of_its_limit_nor_longer() -> None:
    for tries in range(1, 50):
        longest = delay(tries, jitter=1.0)
        assert delay(tries, jitter=0.0) == longest / 2
        assert all(longest / 2 <= random_delay(tries) <= longest for _ in range(20))


def test_stream_tables_that_failed_together_are_not_tried_again_together() -> None:
    assert len({random_delay(8) for _ in range(100)}) > 50


def test_a_skipped_refresh_is_tried_again_soon_however_often_it_was_skipped() -> None:
    assert all(
        random_delay(tries, longest=LONGEST_SKIP) <= timedelta(seconds=10)
        for tries in (1, 10, 10_000)
    )


@pytest.mark.parametrize(("tries", "jitter"), [(0, 0.5), (-1, 0.5), (1, -0.1), (1, 1.1)])
def test_a_delay_that_makes_no_sense_is_an_error(tries: int, jitter: float) -> None:
    with pytest.raises(ValueError, match="no delay"):
        delay(tries, jitter=jitter)
