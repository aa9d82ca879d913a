"""Delete from the buffers the rows that every reader has consumed.

A row is consumed when its transaction is visible in the persisted frontier of each stream table
that reads the source. A transaction that was open when a frontier was taken is not visible in it,
however long ago it wrote: its rows stay until the frontiers have passed its commit.

A stream table without a frontier is being initialised and has not taken its cut yet, so nothing is
deleted from its sources. A stream table that is just being added holds a key share lock on the
source's row (by its foreign key), and the row lock taken here skips that row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import sql

from millstream.capture.buffer.slices import SCHEMA, buffer_name
from millstream.catalog import sources
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.composed import all_of
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load
from millstream.postgres.table_locks import read_committed

_SQL = load("millstream.capture.buffer", "prune.sql")


def prune(conn: Connection, relids: Sequence[int], *, batch: int = 50_000) -> int:
    """Delete the consumed rows of these sources' buffers and return their number.

    Outside a transaction, each batch commits by itself: no long transaction, no long list of dead
    rows.
    """
    return sum(_prune(conn, relid, batch) for relid in dict.fromkeys(relids))


def _prune(conn: Connection, relid: int, batch: int) -> int:
    removed = 0
    while True:
        with read_committed(conn):
            count = _prune_batch(conn, relid, batch)
        removed += count
        if count < batch:
            return removed


def _prune_batch(conn: Connection, relid: int, batch: int) -> int:
    if conn.execute(_SQL["claim"], (relid,)).fetchone() is None:
        return 0
    if conn.execute(_SQL["buffer"], (f"{SCHEMA}.changes_{relid}",)).fetchall()[0][0] is None:
        return 0
    # After the claim, in a statement of its own: its snapshot sees every reader that came before.
    frontiers = sources.consumers(conn, relid)
    if any(frontier is None for frontier in frontiers):
        return 0
    consumed = seen_by_all(frontier for frontier in frontiers if frontier is not None)
    return conn.execute(_delete(relid, consumed, batch)).rowcount


def oldest(frontiers: Iterable[Snapshot]) -> list[Snapshot]:
    """Return the frontiers that have reached no other one: a transaction that these see is seen by
    all.
    """
    minimal: list[Snapshot] = []
    for frontier in frontiers:
        if any(frontier.reaches(other) for other in minimal):
            continue
        minimal = [other for other in minimal if not other.reaches(frontier)] + [frontier]
    return minimal


def seen_by_all(frontiers: Iterable[Snapshot]) -> sql.Composable:
    """Return the condition for rows whose transaction all these frontiers see; true for all rows
    without a frontier.
    """
    deciding = oldest(frontiers)
    if not deciding:
        return sql.SQL("true")
    # No transaction at or above the lowest xmax is seen by all: the index need not be read further.
    below = sql.SQL("xid < {}::xid8").format(
        sql.Literal(str(min(frontier.xmax for frontier in deciding)))
    )
    visible = sql.SQL("pg_visible_in_snapshot(xid, {}::pg_snapshot)")
    return all_of([below, *(visible.format(sql.Literal(str(frontier))) for frontier in deciding)])


def _delete(relid: int, consumed: sql.Composable, batch: int) -> sql.Composed:
    return sql.SQL(
        "DELETE FROM {buffer} WHERE ctid = ANY "
        "(ARRAY(SELECT ctid FROM {buffer} WHERE {consumed} LIMIT {batch}))"
    ).format(buffer=buffer_name(relid), consumed=consumed, batch=sql.Literal(batch))
