"""Which jobs share a cut, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.refresh.job import Job
from millstream.scheduler.cuts import split_at_triggers, upstreams_first
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
