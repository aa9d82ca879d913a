"""Which stream tables a reader takes into its cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from millstream.catalog.stream_tables import StreamTable
from millstream.scheduler.graph import Dependency, Graph
from millstream.scheduler.pulled import with_pulled
from millstream.testing.catalog_rows import stream_table

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
# 3 reads 2, 2 reads 1; 4 reads 1 and 3.
NAMES = {1: "a", 2: "b", 3: "c", 4: "d"}
GRAPH = Graph(NAMES, (Dependency(3, 2), Dependency(2, 1), Dependency(4, 1), Dependency(4, 3)))


def pulled(reader: int, *others: StreamTable) -> list[int]:
    tables = {id: stream_table(id) for id in NAMES} | {table.id: table for table in others}
    return sorted(table.id for table in with_pulled([tables[reader]], tables, GRAPH, NOON))


def test_a_reader_pulls_what_it_reads_to_any_depth() -> None:
    assert pulled(3) == [1, 2, 3]
    assert pulled(4) == [1, 2, 3, 4]
    assert pulled(1) == [1]


def test_calculated_is_pulled_and_so_is_what_waits_for_its_cause() -> None:
    assert pulled(3, stream_table(2, schedule="calculated"), stream_table(1, status="ERROR")) == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    "upstream",
    [
        stream_table(2, schedule="manual"),
        stream_table(2, status="SUSPENDED"),
        stream_table(2, next_try_at=NOON + timedelta(seconds=1)),
    ],
)
def test_what_stays_as_it_is_does_not_pull_either(upstream: StreamTable) -> None:
    assert pulled(3, upstream) == [3]
    assert pulled(4, upstream) == [1, 3, 4], "1 is read by 4 itself"


def test_a_manual_stream_table_that_is_asked_for_pulls() -> None:
    assert pulled(2, stream_table(2, schedule="manual")) == [1, 2]
