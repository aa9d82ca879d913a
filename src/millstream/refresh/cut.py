"""The cut: one REPEATABLE READ transaction whose snapshot is the new frontier.

Everything a refresh reads, it reads here: change buffers, source rows, its own stored table. The
result, the frontier and the history are written in the same transaction, so a crash at any
instruction leaves all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg

from millstream.frontier.snapshot import Snapshot
from millstream.observe.failpoint import failpoint
from millstream.store.connection import Connection


@dataclass
class Cut:
    """A moment of the database, held open."""

    conn: Connection
    snapshot: Snapshot
    taken_at: datetime
    exported: str
    """The name under which other sessions can take the same snapshot."""


@contextmanager
def cut(conn: Connection) -> Iterator[Cut]:
    """Open the transaction, take the snapshot; commit at the end of the block."""
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    try:
        with conn.transaction():
            yield _taken(conn)
    finally:
        conn.isolation_level = None
    failpoint("committed")


def _taken(conn: Connection) -> Cut:
    row = conn.execute("SELECT pg_current_snapshot()::text, clock_timestamp(), pg_export_snapshot()").fetchone()
    assert row is not None
    failpoint("cut_taken")
    return Cut(conn, Snapshot.parse(row[0]), row[1], row[2])
