"""A job: what it reads, and which jobs may share a level."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.refresh.job import Job, levels, relids_read
from millstream.testing.catalog_rows import stream_table


def job(id_: int, *upstreams: int) -> Job:
    return Job(stream_table(id_), (), upstreams=frozenset(upstreams))


def ids(found: Sequence[Sequence[Job]]) -> list[list[int]]:
    return [[job.table.id for job in level] for level in found]


def test_jobs_that_do_not_read_each_other_share_a_level() -> None:
    assert ids(levels([job(1), job(2), job(3)])) == [[1, 2, 3]]


def test_a_reader_comes_in_a_level_after_what_it_reads() -> None:
    assert ids(levels([job(1), job(2), job(3, 1, 2), job(4, 3)])) == [[1, 2], [3], [4]]


def test_a_job_after_a_reader_joins_its_level_unless_it_reads_it() -> None:
    assert ids(levels([job(1), job(2, 1), job(3), job(4, 3)])) == [[1], [2, 3], [4]]


def test_no_jobs_have_no_levels() -> None:
    assert levels([]) == []


def test_a_job_without_a_plan_reads_what_the_catalog_records() -> None:
    unplanned = Job(stream_table(1), (), recorded_relids=frozenset({7, 8}))
    assert relids_read(unplanned) == {7, 8}
    assert not unplanned.clock


def test_row_triggers_are_those_of_the_stream_table_itself() -> None:
    table = stream_table(1, relid=50)
    assert (
        Job(table, (), digests={("triggers", 50): "audit", ("triggers", 51): "x"}).row_triggers
        == "audit"
    )
    assert Job(table, (), digests={("triggers", 51): "x"}).row_triggers == ""
