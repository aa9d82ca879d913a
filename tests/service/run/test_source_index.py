"""Which stream tables may have changes: the sources tell, by rows since the oldest frontier of
their readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from millstream.capture.buffer import probe
from millstream.catalog.sources import Source
from millstream.catalog.stream_tables import StreamTable
from millstream.frontier.snapshot import Snapshot
from millstream.service.run.source_index import SourceIndex
from millstream.testing.catalog_rows import stream_table

# No statement is sent: what the probe tells is given.
CONN: Any = None


def source(relid: int, mode: str = "TRIGGER") -> Source:
    return Source(relid, "public", f"t{relid}", mode, ())  # type: ignore[arg-type]  # a mode


def at(id: int, xmin: int, **fields: Any) -> StreamTable:
    return stream_table(id, frontier=Snapshot(xmin, xmin), **fields)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """What the probe was asked; it answers that source 10 has rows."""
    last = dict[int, int]()

    def since(_conn: object, xmins: Mapping[int, int]) -> set[int]:
        last.clear()
        last.update(xmins)
        return {10} & xmins.keys()

    monkeypatch.setattr(probe, "sources_since", since)
    return last


def test_each_source_is_asked_for_the_oldest_frontier_of_its_readers(asked: dict[int, int]) -> None:
    tables = {1: at(1, 7), 2: at(2, 5), 3: at(3, 9)}
    index = SourceIndex()
    index.load(
        tables, {1: [source(10)], 2: [source(10), source(20, "WAL")], 3: [source(20, "WAL")]}
    )
    assert index.maybe_changed(CONN) == {1, 2}
    assert asked == {10: 5, 20: 5}
    assert [index.uses_wal(id) for id in (1, 2, 3)] == [False, True, True]
    assert index.pairs([tables[2]]) == {(10, Snapshot(5, 5)), (20, Snapshot(5, 5))}


def test_a_refresh_moves_what_is_asked(asked: dict[int, int]) -> None:
    tables = {1: at(1, 7), 2: at(2, 5)}
    index = SourceIndex()
    index.load(tables, {1: [source(10)], 2: [source(10)]})
    tables[2] = at(2, 8)
    index.update({2: [source(10)]})
    index.maybe_changed(CONN)
    assert asked == {10: 7}
    tables[2] = at(2, 9)
    index.update({2: [source(30)]})
    assert index.maybe_changed(CONN) == {1}
    assert asked == {10: 7, 30: 9}
    del tables[1]
    index.update({1: []})
    assert index.maybe_changed(CONN) == set()
    assert asked == {30: 9}


def test_what_is_not_refreshed_by_schedule_does_not_count(asked: dict[int, int]) -> None:
    tables = {
        1: at(1, 1, schedule="manual"),
        2: at(2, 2, status="SUSPENDED"),
        3: stream_table(3),
        4: at(4, 4),
    }
    index = SourceIndex()
    index.load(tables, {id: [source(10)] for id in tables})
    assert index.maybe_changed(CONN) == {4}
    assert asked == {10: 4}
