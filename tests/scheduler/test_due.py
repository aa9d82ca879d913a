"""Which stream tables are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from millstream.scheduler.due import due, refreshable
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
