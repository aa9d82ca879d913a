"""The lock on a stream table: one session at a time fills or refreshes it.

A session's lock: it goes with the connection, however the process ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from millstream.refresh.job import Job
from millstream.store.connection import Connection


@contextmanager
def locked(conn: Connection, jobs: Sequence[Job]) -> Iterator[set[int]]:
    """Hold each table's lock, taken before the cut: a snapshot from before the lock could be stale."""
    free = try_lock(conn, [job.table.id for job in jobs])
    try:
        yield free
    finally:
        unlock(conn, free)


def try_lock(conn: Connection, ids: Sequence[int]) -> set[int]:
    """Take the locks on these stream tables that nobody has."""
    taken = "SELECT id, pg_try_advisory_lock(hashtext('millstream'), id) FROM unnest(%s::int4[]) AS id"
    return {id_ for id_, held in conn.execute(taken, (list(ids),)) if held}


def unlock(conn: Connection, ids: Iterable[int]) -> None:
    """Give them back."""
    if not conn.closed and not conn.broken:
        given = "SELECT pg_advisory_unlock(hashtext('millstream'), id) FROM unnest(%s::int4[]) AS id"
        conn.execute(given, (list(ids),))
