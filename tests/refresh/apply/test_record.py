"""Recording a refresh: who asked for it.

Frontier and history: `tests/refresh/test_refresher.py`, `tests/catalog`.
"""

from __future__ import annotations

import pytest

from millstream.catalog.history import Initiator
from millstream.frontier.snapshot import Snapshot
from millstream.refresh.apply.record import initiator
from millstream.refresh.job import Job
from millstream.testing.catalog_rows import stream_table


@pytest.mark.parametrize(
    ("frontier", "asked", "recorded"),
    [
        (None, "INITIAL", "INITIAL"),
        (Snapshot(10, 10), "INITIAL", "MANUAL"),
        (None, "SCHEDULER", "SCHEDULER"),
        (Snapshot(10, 10), "MANUAL", "MANUAL"),
    ],
)
def test_one_that_the_creation_of_another_pulls_along_is_not_an_initial_one(
    frontier: Snapshot | None, asked: Initiator, recorded: Initiator
) -> None:
    assert initiator(Job(stream_table(1, frontier=frontier), ()), asked) == recorded
