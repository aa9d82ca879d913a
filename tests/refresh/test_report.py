"""The report of a refresh: what it counts, and as a document."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from millstream.catalog.upstreams import OlderUpstream
from millstream.frontier.snapshot import Snapshot
from millstream.refresh.report import InputReport, RefreshReport, Tally

AT = datetime(2024, 6, 1, 12, tzinfo=UTC)
REPORT = RefreshReport(
    "totals", "DIFFERENTIAL", "CHANGED", AT, Snapshot(10, 20, (12,)), 1, 2, 3, 87.5, 1,
    (InputReport("o", "public.orders", "changes", 7), InputReport("c", "public.customers", "lookup", 20, "by key")),
    {"spark": 50.25}, "SCHEDULER", (OlderUpstream(0, "public.base", "SUSPENDED", AT, "it failed"),),
    ("It holds all rows.",),
)  # fmt: skip


def test_rows_are_counted_over_inputs_and_over_kinds_of_change() -> None:
    assert (REPORT.rows_read, REPORT.rows_changed) == (27, 6)


def test_the_answer_of_a_service_is_read_back_whole() -> None:
    assert RefreshReport.from_dict(json.loads(json.dumps(REPORT.as_dict()))) == REPORT


def test_a_phase_that_is_entered_twice_adds_up_and_one_that_fails_is_timed_too() -> None:
    tally = Tally()
    with tally.phase("spark"):
        pass
    first = tally.phases["spark"]
    with pytest.raises(ZeroDivisionError), tally.phase("spark"):
        raise ZeroDivisionError
    assert tally.phases["spark"] >= first
    assert [*tally.phases] == ["spark"]
