"""Find the stream tables that may have changes, by their sources, in one statement for all of them.

It has the readers of each source, and the oldest transaction that one of their frontiers has not
seen. If the buffer of a source has no row since that transaction, there are no changes for any
reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from millstream.capture.buffer import probe
from millstream.capture.buffer.slices import Pair
from millstream.catalog.sources import Source
from millstream.catalog.stream_tables import StreamTable
from millstream.postgres.connection import Connection
from millstream.scheduler.cadence import Cadence
from millstream.scheduler.due import REFRESHED


class SourceIndex:
    """The sources of the stream tables that are refreshed by schedule."""

    def __init__(self) -> None:
        self._tables: Mapping[int, StreamTable] = {}
        self._sources = dict[int, Sequence[Source]]()
        self._readers = dict[int, set[int]]()
        self._xmins = dict[int, int]()

    def load(
        self, tables: Mapping[int, StreamTable], sources: Mapping[int, Sequence[Source]]
    ) -> None:
        """Replace the contents of the index; the caller keeps `tables` up to date."""
        self._tables, self._sources, self._readers = tables, dict(sources), {}
        for id in tables:
            self._enter(id)
        self._xmins = self._oldest(self._readers)

    def update(self, sources: Mapping[int, Sequence[Source]]) -> None:
        """Update the frontiers of stream tables; the values are the sources that they now read, by
        id.
        """
        changed = set[int]()
        for id, read in sources.items():
            former = {source.relid for source in self._sources.get(id, ())}
            for relid in former:
                self._readers.get(relid, set()).discard(id)
            self._sources[id] = read
            self._enter(id)
            changed |= former | {source.relid for source in read}
        for relid in changed:
            self._xmins.pop(relid, None)
        self._xmins |= self._oldest(changed)

    def uses_wal(self, id: int) -> bool:
        """Return True if a source of a stream table is captured from WAL."""
        return any(source.uses_wal for source in self._sources.get(id, ()))

    def maybe_changed(self, conn: Connection) -> set[int]:
        """Return the stream tables that read a source whose buffer may have changes for any of its
        readers.
        """
        return {
            id
            for relid in probe.sources_since(conn, self._xmins)
            for id in self._readers.get(relid, ())
        }

    def pairs(self, tables: Iterable[StreamTable]) -> set[Pair]:
        """Return each source of these stream tables with the frontier of its reader."""
        return {
            (source.relid, table.frontier)
            for table in tables
            if table.frontier is not None
            for source in self._sources.get(table.id, ())
        }

    def _enter(self, id: int) -> None:
        table = self._tables.get(id)
        if table is not None and _is_scheduled(table):
            for source in self._sources.get(id, ()):
                self._readers.setdefault(source.relid, set()).add(id)

    def _oldest(self, relids: Iterable[int]) -> dict[int, int]:
        """Return the oldest unseen transaction of each source that has readers."""
        found = dict[int, int]()
        for relid in relids:
            frontiers = [
                self._tables[id].frontier
                for id in self._readers.get(relid, ())
                if id in self._tables
            ]
            if xmins := [frontier.xmin for frontier in frontiers if frontier is not None]:
                found[relid] = min(xmins)
        return found


def _is_scheduled(table: StreamTable) -> bool:
    """Return True if a stream table is refreshed by schedule, its own or that of a reader."""
    is_manual = Cadence.parse(table.schedule).kind == "manual"
    return table.frontier is not None and table.status in REFRESHED and not is_manual
