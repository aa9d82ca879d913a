"""Durations: what is read, what is refused, how they print."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("1s", timedelta(seconds=1)),
        (" 5 M ", timedelta(minutes=5)),
        ("1h", timedelta(hours=1)),
        ("2d", timedelta(days=2)),
    ],
)
def test_a_number_and_a_unit_are_a_duration(text: str, expected: timedelta) -> None:
    assert duration.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-1s", "1.5s", "1h30m", "1 week", "٣s", "9999999999s"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration.parse(text)


@given(st.integers(0, 10**9 - 1), st.sampled_from(list(duration.UNITS)))
def test_the_printed_form_reads_back_as_the_same_duration(count: int, unit: str) -> None:
    try:
        given = count * duration.UNITS[unit]
    except OverflowError:  # 10^9 days are more than a timedelta holds
        return
    printed = duration.printed(given)
    assert len(printed) > 11 or duration.parse(printed) == given
