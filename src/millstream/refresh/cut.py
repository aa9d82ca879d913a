"""The cut: one REPEATABLE READ transaction whose snapshot is the new frontier.

A refresh reads everything here: change buffers, source rows, its own stored tables. The result, the
frontier and the history are written in the same transaction, so after a crash all of it is there or
nothing. The sources are locked before the snapshot is taken (see `source_locks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from millstream.catalog.upstreams import OlderUpstream
from millstream.frontier.snapshot import Snapshot
from millstream.observe.failpoint import failpoint
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.refresh.buffers import Buffers
from millstream.refresh.source_locks import hold_sources


@dataclass
class Cut:
    """A moment of the database, held open."""

    conn: Connection
    snapshot: Snapshot
    taken_at: datetime
    """What now() returns in its transaction."""
    exported: str
    """The name of the exported snapshot, for SET TRANSACTION SNAPSHOT in other sessions."""
    busy: frozenset[Name] = frozenset()
    """Sources that could not be locked; a stream table that reads one is not refreshed in this cut.
    """
    own: int = 0
    """The id of its own transaction."""
    written: set[int] = field(default_factory=set)
    """Oids of the stream tables that this cut has changed; those that read them see the new rows.
    """
    behind: dict[int, tuple[OlderUpstream, ...]] = field(default_factory=dict)
    """For each stream table of this cut, by id: its upstreams, to any depth, that stay older than
    the cut.
    """
    buffers: Buffers = field(init=False)

    def __post_init__(self) -> None:
        self.buffers = Buffers(self.conn, self.snapshot)

    def frontier(self, reads: set[int]) -> Snapshot:
        """Return the frontier of a stream table that was refreshed in this cut and reads these
        tables.
        """
        return self.snapshot.including(self.own) if reads & self.written else self.snapshot


@contextmanager
def cut(
    conn: Connection, tables: Sequence[Name] = (), written: Sequence[Name] = ()
) -> Iterator[Cut]:
    """Open the transaction, hold these tables, take the snapshot; commit at the end of the block."""
    with hold_sources(conn, tables, written) as busy:
        yield _take(conn, busy)
    failpoint("committed")


def _take(conn: Connection, busy: frozenset[Name]) -> Cut:
    row = conn.execute(
        "SELECT pg_current_snapshot()::text, now(), pg_export_snapshot(), pg_current_xact_id()::text::int8"
    ).fetchone()
    assert row is not None
    failpoint("cut_taken")
    return Cut(conn, Snapshot.parse(row[0]), row[1], row[2], busy, row[3])
