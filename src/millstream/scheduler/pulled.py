"""Pull along: a due stream table takes its upstreams, to any depth, into its cut.

So its rows equal its query over the sources at one moment, for any schedules of its upstreams.

    manual, suspended          is not refreshed, nor are those that only it reads: the reader uses its stored rows, and
                               its own data timestamp is no later than that of those rows
    failed, and held back      the same, until it may be tried again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from millstream.catalog.stream_tables import StreamTable
from millstream.scheduler.cadence import Cadence
from millstream.scheduler.due import triable
from millstream.scheduler.graph import Graph


def with_pulled(
    due: Iterable[StreamTable], tables: Mapping[int, StreamTable], graph: Graph, now: datetime
) -> list[StreamTable]:
    """Return the stream tables that are due, and those that they pull along; `tables` are all, by
    id.
    """
    chosen = {table.id: table for table in due}
    waiting = list(chosen)
    while waiting:
        for id in graph.direct_upstreams(waiting.pop()) - chosen.keys():
            upstream = tables.get(id)
            if upstream is not None and may_be_pulled(upstream, now):
                chosen[id] = upstream
                waiting.append(id)
    return list(chosen.values())


def may_be_pulled(table: StreamTable, now: datetime) -> bool:
    """Return True if a reader that is due refreshes this stream table with it."""
    return Cadence.parse(table.schedule).kind != "manual" and bool(triable([table], now))
