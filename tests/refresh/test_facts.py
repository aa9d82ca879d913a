"""The facts of a job: pending changes per source, and the reason of a recomputation."""

from __future__ import annotations

import pytest

from millstream.capture.buffer.slices import Pending
from millstream.catalog.definitions.definition_digests import Change
from millstream.catalog.sources import Source
from millstream.frontier.snapshot import Snapshot
from millstream.refresh.decide import SourceFacts
from millstream.refresh.facts import recompute_reason, slices, source_facts
from millstream.refresh.job import Job
from millstream.testing.catalog_rows import stream_table

OLD, NEW = Snapshot(10, 10), Snapshot(20, 20)
ORDERS, LINES = (
    Source(1, "public", "orders", "TRIGGER", ()),
    Source(2, "public", "lines", "TRIGGER", ()),
)


def test_each_stream_table_reads_its_sources_after_its_own_frontier() -> None:
    jobs = [Job(stream_table(1, frontier=OLD), ()), Job(stream_table(2, frontier=NEW), ())]
    read = {1: [ORDERS, LINES], 2: [ORDERS]}
    assert slices(jobs, read) == [(1, OLD), (2, OLD), (1, NEW)]


def test_a_stream_table_without_a_frontier_reads_no_slice() -> None:
    job = Job(stream_table(1), ())
    assert slices([job], {1: [ORDERS]}) == []
    assert source_facts(job, [ORDERS], {}, {}) == ()


def test_pending_changes_and_sizes_become_facts() -> None:
    job = Job(stream_table(1, frontier=OLD), ())
    pending = {
        (1, OLD): Pending(1, OLD, 7, truncated=True),
        (2, OLD): Pending(2, OLD, 0, gap="PARTITIONS_CHANGED"),
    }
    assert source_facts(job, [ORDERS, LINES], pending, {1: 300.0}) == (
        SourceFacts("public.orders", 7, 300.0, truncated=True),
        SourceFacts("public.lines", 0, 0.0, gap="PARTITIONS_CHANGED"),
    )


@pytest.mark.parametrize(
    ("recorded_otherwise", "of_job", "reason"),
    [
        (True, "", "VIEW_REPLACED"),
        (True, "UNGUARDED", "VIEW_REPLACED"),
        (False, "UNGUARDED", "UNGUARDED"),
        (False, "", ""),
    ],
)
def test_a_changed_definition_goes_before_the_reason_of_the_job(
    recorded_otherwise: bool, of_job: str, reason: str
) -> None:
    change = Change(
        1, "view", 5, "digest", is_planned_otherwise=False, is_recorded_otherwise=recorded_otherwise
    )
    assert recompute_reason(Job(stream_table(1), (), recompute_reason=of_job), [change]) == reason
