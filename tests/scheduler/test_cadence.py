"""Schedules: read, printed, due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from millstream.errors import BadSetting
from millstream.scheduler.cadence import Cadence

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("500ms", "500ms"),
        ("60s", "1m"),
        ("90s", "90s"),
        ("24h", "1d"),
        ("MANUAL", "manual"),
        ("continuous", "continuous"),
    ],
)
def test_a_schedule_prints_in_its_shortest_form_and_reads_back(text: str, printed: str) -> None:
    cadence = Cadence.parse(text)
    assert str(cadence) == printed
    assert Cadence.parse(printed) == cadence


def test_it_is_due_when_its_length_has_passed_since_the_last_refresh() -> None:
    cadence = Cadence.parse("1s")
    assert cadence.due(None, NOON)
    assert not cadence.due(NOON - timedelta(milliseconds=999), NOON)
    assert cadence.due(NOON - timedelta(seconds=1), NOON)


def test_manual_is_never_due_and_continuous_always() -> None:
    assert not Cadence.parse("manual").due(None, NOON)
    assert Cadence.parse("continuous").due(NOON, NOON)


@pytest.mark.parametrize("text", ["", "0s", "0ms", "often", "-1s", "1.5s"])
def test_what_is_no_schedule_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(BadSetting) as caught:
        Cadence.parse(text)
    assert repr(text) in caught.value.message
    assert caught.value.hint.startswith("Expected")


@pytest.mark.parametrize(
    ("text", "last", "due"),
    [
        ("*/5 * * * *", NOON, NOON + timedelta(minutes=5)),
        ("*/5 * * * *", NOON + timedelta(minutes=4, seconds=59), NOON + timedelta(minutes=5)),
        ("@hourly", NOON + timedelta(seconds=1), NOON + timedelta(hours=1)),
        ("@DAILY", NOON, NOON + timedelta(hours=12)),
        # Six in the morning in Berlin, where it is summer.
        ("CRON_TZ=Europe/Berlin 0 6 * * *", NOON, datetime(2024, 6, 2, 4, tzinfo=UTC)),
    ],
)
def test_a_cron_expression_is_due_at_its_next_time_after_the_last_refresh(
    text: str, last: datetime, due: datetime
) -> None:
    cadence = Cadence.parse(text)
    assert cadence.due_at(last) == due
    assert not cadence.due(last, due - timedelta(milliseconds=1))
    assert cadence.due(last, due)
    assert cadence.target(last) == due - last
    assert Cadence.parse(str(cadence)) == cadence


def test_a_time_that_a_change_of_clocks_skips_is_not_lost() -> None:
    cadence = Cadence.parse("CRON_TZ=Europe/Berlin 30 2 31 3 *")
    # On 31 March 2024 the clocks in Berlin went from 2:00 to 3:00.
    assert cadence.due_at(datetime(2024, 3, 30, tzinfo=UTC)) == datetime(2024, 3, 31, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "@often",
        "* * * *  * * * *",
        "61 * * * *",
        "0 0 31 2 *",
        "CRON_TZ=Europe/Berlin",
        "CRON_TZ=Nowhere/City 0 6 * * *",
    ],
)
def test_a_cron_expression_that_never_fires_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="bad value for schedule"):
        Cadence.parse(text)


def test_a_calculated_schedule_is_never_due_by_itself() -> None:
    cadence = Cadence.parse("calculated")
    assert str(cadence) == "calculated"
    assert not cadence.due(None, NOON)
    assert cadence.target(NOON) is None


def test_a_schedule_shorter_than_the_setting_allows_is_refused() -> None:
    with pytest.raises(BadSetting) as caught:
        Cadence.parse("100ms", shortest=timedelta(milliseconds=200))
    assert "200ms or longer (setting min_schedule)" in caught.value.hint


@pytest.mark.parametrize("text", ["3651d", "1500000d", "3000000d", "999999999d", "999999999h"])
def test_a_schedule_beyond_what_can_be_reckoned_with_is_refused(text: str) -> None:
    assert Cadence.parse("3650d").due(NOON - timedelta(days=3650), NOON)
    with pytest.raises(BadSetting) as caught:
        Cadence.parse(text)
    assert "3650d or shorter" in caught.value.hint


@pytest.mark.parametrize("minute", [29, 30, 31, 60, 90, 91, 120])
def test_in_the_hour_that_clocks_repeat_it_is_due_after_the_last_refresh(minute: int) -> None:
    # On 27 October 2024 the clocks in Berlin went from 3:00 to 2:00, at 1:00 UTC.
    last = datetime(2024, 10, 27, 0, 0, 17, tzinfo=UTC) + timedelta(minutes=minute)
    due_at = Cadence.parse("CRON_TZ=Europe/Berlin 30 2 * * *").due_at(last)
    assert due_at is not None
    assert due_at > last
    assert due_at - last <= timedelta(hours=25)


def test_a_cadence_that_makes_no_sense_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="needs length"):
        Cadence("every")
    with pytest.raises(ValueError, match="has no length"):
        Cadence("manual", timedelta(seconds=1))
    with pytest.raises(ValueError, match="longer than nothing"):
        Cadence("every", timedelta(0))
