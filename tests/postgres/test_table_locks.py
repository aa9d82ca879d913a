"""Patience in numbers; what it does to writers is tested where capture is set up."""

from __future__ import annotations

import pytest

from millstream.postgres.table_locks import Patience


def test_pauses_double_up_to_the_longest_and_vary() -> None:
    patience = Patience(first_pause=0.1, longest_pause=0.5)
    for attempt, longest in enumerate([0.1, 0.2, 0.4, 0.5, 0.5]):
        pauses = {patience.pause(attempt) for _ in range(50)}
        assert all(longest / 2 <= pause <= longest for pause in pauses)
        assert len(pauses) > 1
    assert patience.pause(10_000) <= 0.5


@pytest.mark.parametrize("wrong", [{"lock_timeout": 0.0}, {"seconds": -1.0}, {"first_pause": 0.0}])
def test_patience_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        Patience(**wrong)
