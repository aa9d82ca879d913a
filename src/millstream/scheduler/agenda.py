"""The agenda of the service: which stream tables are due, the most overdue first.

It has a copy of the catalog's rows in memory, so that asking it executes no statement:

    load, update        take in the catalog's rows, which are read again when they have changed
    due                 by graph: the stream tables whose deadline has passed, and those that they pull along
    found_nothing       the sources have no changes: the next deadline counts from now
    not_refreshed       a refresh was skipped and left no record: not tried again at once
    started, finished   a graph that is being refreshed is not due; the duration of its refresh is recorded

The deadline of a stream table is the time of its last cut, or the last time that its sources were
found unchanged, plus the interval of its schedule. It is never before the end of a back-off.

    schedule 10s    12:00:00  cut                        deadline 12:00:10
                    12:00:11  due; no changes found      deadline 12:00:21
                    12:00:21  due; started, finished     taken off meanwhile; `update` brings the new cut
                              due; not_refreshed         deadline some seconds later, at random

A graph is a set of stream tables that are connected by reading each other; they are refreshed
together, in one cut. Independent graphs are refreshed in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from millstream.catalog.stream_tables import StreamTable
from millstream.errors import MillstreamError
from millstream.observe import log
from millstream.scheduler import backoff
from millstream.scheduler.cadence import Cadence
from millstream.scheduler.due import REFRESHED
from millstream.scheduler.freshness import Watched, watched
from millstream.scheduler.graph import Graph
from millstream.scheduler.pulled import with_pulled

# Expected seconds of a refresh, before the first one.
UNKNOWN = 0.3
# Weight of the last refresh in the moving average of a stream table's durations.
LAST = 0.3


@dataclass(frozen=True)
class Due:
    """Stream tables of one graph that are to be refreshed together."""

    tables: tuple[StreamTable, ...]
    deadline: datetime
    """The earliest deadline of these stream tables."""
    seconds: float
    """How long a refresh of this graph is expected to take."""

    @property
    def ids(self) -> list[int]:
        """The stream tables' ids."""
        return [table.id for table in self.tables]


class Agenda:
    """Stream tables, their graphs, deadlines and costs."""

    def __init__(self) -> None:
        self.tables = dict[int, StreamTable]()
        self.graph = Graph({}, ())
        # All of these are by id of a stream table.
        self._graph_of = dict[int, frozenset[int]]()
        self._deadlines = dict[int, datetime]()
        # When its sources were last found to have no changes.
        self._looked_at = dict[int, datetime]()
        # How long a refresh takes, as a moving average.
        self._seconds = dict[int, float]()
        self._running = set[int]()
        # Stream tables whose schedule cannot be computed with; each is logged once.
        self._unusable = set[int]()
        # How many refreshes in a row were skipped, and until when it is therefore not due.
        self._skips = dict[int, int]()
        self._held_until = dict[int, datetime]()
        # The interval, if the deadline is simply the last check plus this interval.
        self._every = dict[int, timedelta]()

    def load(
        self, tables: Iterable[StreamTable], graph: Graph, now: datetime | None = None
    ) -> None:
        """Replace all stream tables and their graph; those that are being refreshed stay marked.

        `now` is by the server's clock. If a recorded time is after it, the clock was set back; such
        times are ignored, or replaced by `now`.
        """
        former, self.tables = (
            self.tables,
            {table.id: table for table in tables if self._has_usable_schedule(table)},
        )
        if now is not None:
            self._looked_at = {id: at for id, at in self._looked_at.items() if at <= now}
        if graph != self.graph or not self._graph_of.keys() >= self.tables.keys():
            self.graph = graph
            self._graph_of = {id: together for together in graph.components() for id in together}
        for id in former.keys() - self.tables.keys():
            self._forget(id)
        for id, table in self.tables.items():
            self._take(id, former.get(id), table)
            ahead = (
                table.cut_at - now if now is not None and table.cut_at is not None else timedelta(0)
            )
            if ahead > timedelta(0) and id in self._deadlines:
                self._deadlines[id] -= ahead

    def update(self, tables: Iterable[StreamTable]) -> None:
        """Replace these stream tables by their current catalog rows; ids that are not on the agenda
        are ignored.
        """
        for table in tables:
            if (former := self.tables.get(table.id)) is not None and self._has_usable_schedule(
                table
            ):
                self.tables[table.id] = table
                self._take(table.id, former, table)

    def due_ids(self, now: datetime) -> list[int]:
        """Return the stream tables that are due, of graphs that are not being refreshed, in no
        order.
        """
        found = [id for id, deadline in self._deadlines.items() if deadline <= now]
        running = self.running() if found else set()
        return [id for id in found if id not in running] if running else found

    def due(self, now: datetime, ids: Iterable[int] | None = None) -> list[Due]:
        """Return the due stream tables of each graph that is not being refreshed, most overdue
        first; only of these `ids`.
        """
        by_graph = dict[frozenset[int], list[int]]()
        for id in self.due_ids(now) if ids is None else ids:
            by_graph.setdefault(self.graph_of(id), []).append(id)
        found = [self._due(ids, now) for ids in by_graph.values()]
        return sorted(found, key=lambda due: (due.deadline, min(due.ids)))

    def next_due_at(self) -> datetime | None:
        """Return the next deadline of a graph that is not being refreshed."""
        running = self.running()
        return min((at for id, at in self._deadlines.items() if id not in running), default=None)

    def watched(self) -> list[Watched]:
        """Return the freshness of each stream table whose schedule has a target."""
        found = (
            watched(
                table, looked_at=self._looked_at.get(id), seconds=self._seconds.get(id, UNKNOWN)
            )
            for id, table in self.tables.items()
        )
        return [one for one in found if one is not None]

    def found_nothing(self, ids: Iterable[int], now: datetime) -> None:
        """Record that the sources of these stream tables had no changes at `now`."""
        for id in ids:
            if id not in self.tables:
                continue
            self._looked_at[id] = now
            every = self._every.get(id)
            if every is not None and id not in self._held_until:
                # What `deadline` would return, computed faster: this runs several times a second
                # for each idle table.
                self._deadlines[id] = now + every
            else:
                self._set_deadline(id)

    def not_refreshed(self, id: int, now: datetime) -> None:
        """Record that a refresh was neither done nor recorded as failed, because another process
        works on the stream table.
        """
        self._skips[id] = self._skips.get(id, 0) + 1
        self._held_until[id] = now + backoff.random_delay(
            self._skips[id], longest=backoff.LONGEST_SKIP
        )
        self._set_deadline(id)

    def started(self, ids: Iterable[int]) -> None:
        """Take the graphs of these stream tables off the agenda until they have been refreshed."""
        self._running |= set(ids)

    def finished(self, ids: Sequence[int], seconds: float | None = None) -> None:
        """Put the graphs of these stream tables on the agenda again; `seconds` has the duration of
        each refresh.
        """
        self._running -= set(ids)
        if seconds is not None:
            for id in ids:
                self._seconds[id] = (1 - LAST) * self._seconds.get(id, seconds) + LAST * seconds

    def running(self) -> set[int]:
        """Return the stream tables whose graphs are being refreshed."""
        return {id for started in self._running for id in self.graph_of(started)}

    def _due(self, ids: Sequence[int], now: datetime) -> Due:
        tables = with_pulled([self.tables[id] for id in ids], self.tables, self.graph, now)
        seconds = max(self._seconds.get(table.id, UNKNOWN) for table in tables)
        # A stream table that is only refreshed because others read it has no deadline.
        deadline = min((self._deadlines[id] for id in ids if id in self._deadlines), default=now)
        return Due(tuple(tables), deadline, seconds)

    def graph_of(self, id: int) -> frozenset[int]:
        """Return the stream tables that are connected with this one, and itself."""
        return self._graph_of.get(id) or frozenset({id})

    def _has_usable_schedule(self, table: StreamTable) -> bool:
        """Return False if computing with the schedule raises an error, which must not end the
        service.
        """
        try:
            moment = table.cut_at or datetime.now(UTC)
            if (length := target(table, moment)) is not None:
                # `freshness.py` adds twice the target, and a little more.
                moment + 3 * length
            deadline(table)
        except (MillstreamError, OverflowError, ValueError) as error:
            if table.id not in self._unusable:
                log.error(
                    "not refreshed by schedule",
                    table=table.name,
                    schedule=table.schedule,
                    reason=str(error),
                )
            self._unusable.add(table.id)
            return False
        self._unusable.discard(table.id)
        return True

    def _take(self, id: int, former: StreamTable | None, table: StreamTable) -> None:
        """Set the deadline of a stream table; if its catalog row has changed, it is no longer held
        back.
        """
        if former != table:
            self._skips.pop(id, None)
            self._held_until.pop(id, None)
            self._every.pop(id, None)
            every = Cadence.parse(table.schedule).every
            is_plain = (
                table.cut_at is not None and table.status in REFRESHED and table.next_try_at is None
            )
            if every is not None and is_plain:
                self._every[id] = every
        self._set_deadline(id)

    def _set_deadline(self, id: int) -> None:
        at, held_until = (
            deadline(self.tables[id], self._looked_at.get(id)),
            self._held_until.get(id),
        )
        if at is None:
            self._deadlines.pop(id, None)
        else:
            self._deadlines[id] = at if held_until is None else max(at, held_until)

    def _forget(self, id: int) -> None:
        self._looked_at.pop(id, None)
        self._deadlines.pop(id, None)
        self._every.pop(id, None)
        self._seconds.pop(id, None)
        self._skips.pop(id, None)
        self._held_until.pop(id, None)


def deadline(table: StreamTable, looked_at: datetime | None = None) -> datetime | None:
    """Return when a stream table is due if its sources had no changes at `looked_at`; None if never
    by itself.
    """
    if table.status not in REFRESHED:
        return None
    last = table.cut_at
    if last is not None and looked_at is not None:
        last = max(last, looked_at)
    at = Cadence.parse(table.schedule).due_at(last)
    return max(at, table.next_try_at) if at is not None and table.next_try_at is not None else at


def target(table: StreamTable, now: datetime) -> timedelta | None:
    """Return how old the rows of a stream table may become; None if its schedule has no target."""
    return Cadence.parse(table.schedule).target(table.cut_at or now)
