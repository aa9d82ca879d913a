"""Waiting for what another session does: the value that was seen is returned, and never waiting is
no failure.
"""

from __future__ import annotations

import pytest

from millstream.testing.waiting import wait_until


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, "", 7, 8])
    assert wait_until(lambda: next(values), pause=0) == 7
    assert next(values) == 8


def test_a_condition_that_is_true_at_once_is_looked_at_once() -> None:
    looks = iter([7])
    assert wait_until(lambda: next(looks), seconds=0) == 7
    assert [*looks] == []


def test_what_never_comes_is_an_error_after_the_time_is_over() -> None:
    with pytest.raises(AssertionError, match="not seen within 0 s"):
        wait_until(lambda: False, seconds=0, pause=0)
