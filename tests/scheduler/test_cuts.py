"""Which jobs share a cut, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.postgres import lock_table
from millstream.postgres.lock_table import LockTable
from millstream.refresh.batches import Footprint
from millstream.refresh.job import Job
from millstream.scheduler import cuts
from millstream.scheduler.cuts import split_at_triggers, upstreams_first
from millstream.settings import Settings
from millstream.testing.catalog_rows import stream_table


def job(id_: int, *upstreams: int) -> Job:
    return Job(stream_table(id_), (), upstreams=frozenset(upstreams))


def ids(jobs: Sequence[Job]) -> list[int]:
    return [job.table.id for job in jobs]


def test_a_job_comes_after_those_that_it_reads_and_others_keep_their_order() -> None:
    assert ids(upstreams_first([job(1, 2), job(5), job(2, 3), job(4), job(3)])) == [5, 4, 3, 2, 1]


def test_an_upstream_that_is_not_refreshed_does_not_hold_a_job_back() -> None:
    assert ids(upstreams_first([job(1, 99), job(2)])) == [1, 2]


def test_jobs_in_a_cycle_are_all_returned() -> None:
    assert ids(upstreams_first([job(1, 2), job(2, 1), job(3, 1)])) == [1, 2, 3]


def test_a_stream_table_with_triggers_is_a_part_of_its_own() -> None:
    graph = [job(1), job(2), job(3), job(4), job(5)]
    assert [ids(part) for part in split_at_triggers(graph, {3})] == [[1, 2], [3], [4, 5]]
    assert [ids(part) for part in split_at_triggers(graph, {1, 5})] == [[1], [2, 3, 4], [5]]


def test_a_graph_without_triggers_stays_whole() -> None:
    assert [ids(part) for part in split_at_triggers([job(1), job(2)], set())] == [[1, 2]]


def test_graphs_share_a_cut_as_far_as_the_share_of_the_locks_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 6,400 locks: a half is room for two graphs of 300, six in a hundred for one."""
    for name in ("empty", "read"):
        monkeypatch.setattr(lock_table, name, lambda conn: LockTable(64, 100, 0))
    graphs = [[job(1)], [job(2)]]
    footprints = SimpleNamespace(
        of=lambda conn, jobs: {one.table.id: Footprint({one.table.id: 300}) for one in jobs}
    )
    found = dict[float, list[list[list[int]]]]()
    for share in (0.5, 0.06):
        settings = Settings(max_lock_share=share)
        context: Any = SimpleNamespace(conn=None, settings=settings, footprints=footprints)
        found[share] = [
            [ids(graph) for graph in cut] for cut in cuts._fill_cuts(context, graphs).cuts
        ]
    assert found == {0.5: [[[1], [2]]], 0.06: [[[1]], [[2]]]}
