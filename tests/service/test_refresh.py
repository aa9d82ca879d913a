"""The verb refresh: what is refreshed with a stream table, and what is raised.

Refreshing itself: `tests/scheduler`.
"""

from __future__ import annotations

from typing import Any

import pytest

from millstream import Millstream
from millstream.errors import Busy, RefreshFailed
from millstream.service.refresh import _reports, upstreams_of


def test_a_stream_table_takes_along_what_it_reads_to_any_depth_but_not_what_is_suspended(
    unfilled: Millstream,
) -> None:
    query = "SELECT region, total FROM {}"
    unfilled.create_stream_table("second", query.format("totals"), initialize=False)
    unfilled.create_stream_table("third", query.format("second"), initialize=False)
    app = unfilled.app

    def read_by(name: str) -> set[str]:
        return {table.name for table in upstreams_of(app, app.named(name))}

    assert (read_by("totals"), read_by("second"), read_by("third")) == (
        set(),
        {"totals"},
        {"totals", "second"},
    )
    unfilled.alter_stream_table("second", status="SUSPENDED")
    assert read_by("third") == {"totals"}


def test_of_several_errors_the_first_is_raised_and_without_one_all_reports_are_returned() -> None:
    # Any: reports are not looked at.
    reports: Any = []
    assert _reports(reports) == []
    errors = [RefreshFailed.because("a", "It broke."), Busy.working_on("b", None)]
    with pytest.raises(RefreshFailed):
        _reports(errors)
