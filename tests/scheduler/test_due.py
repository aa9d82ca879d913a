"""Which stream tables are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millstream.scheduler.due import due, next_due_at, refreshable, triable
from millstream.testing.catalog_rows import stream_table

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


def test_a_stream_table_is_due_when_its_schedule_has_passed_since_its_last_cut() -> None:
    fresh = stream_table(1, schedule="1m", cut_at=NOON - timedelta(seconds=59))
    stale = stream_table(2, schedule="1m", cut_at=NOON - timedelta(seconds=60))
    never = stream_table(3, schedule="1m")
    assert due([fresh, stale, never], NOON) == [stale, never]


@pytest.mark.parametrize("status", ["ACTIVE", "INITIALIZING", "ERROR"])
def test_an_error_does_not_keep_a_stream_table_from_being_refreshed(status: str) -> None:
    assert refreshable([stream_table(status=status)]) != []


def test_a_suspended_stream_table_is_not_due() -> None:
    suspended = stream_table(status="SUSPENDED")
    assert refreshable([suspended]) == []
    assert due([suspended], NOON) == []


def test_a_manual_schedule_is_never_due() -> None:
    assert due([stream_table(schedule="manual", cut_at=NOON - timedelta(days=9))], NOON) == []


def test_a_stream_table_that_failed_is_not_due_before_its_next_try() -> None:
    later = stream_table(
        1, cut_at=NOON - timedelta(hours=1), next_try_at=NOON + timedelta(seconds=1)
    )
    now = stream_table(2, cut_at=NOON - timedelta(hours=1), next_try_at=NOON)
    assert due([later, now], NOON) == triable([later, now], NOON) == [now]
    assert refreshable([later, now]) == [later, now]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"schedule": "1m", "cut_at": NOON - timedelta(seconds=20)}, NOON + timedelta(seconds=40)),
        ({"schedule": "1m", "cut_at": NOON - timedelta(hours=1)}, NOON),
        ({"schedule": "1m"}, NOON),
        ({"schedule": "1m", "next_try_at": NOON + timedelta(seconds=5)}, NOON + timedelta(seconds=5)),
        ({"schedule": "1m", "cut_at": NOON, "next_try_at": NOON + timedelta(seconds=5)}, NOON + timedelta(minutes=1)),
        ({"schedule": "1m", "next_try_at": NOON - timedelta(seconds=5)}, NOON),
        ({"schedule": "manual"}, None),
        ({"schedule": "1m", "status": "SUSPENDED"}, None),
    ],
)  # fmt: skip
def test_the_next_refresh_is_due_at_the_deadline_or_at_the_end_of_the_back_off(
    fields: dict[str, Any], expected: datetime | None
) -> None:
    assert next_due_at(stream_table(**fields), NOON) == expected
