"""Lock the sources before the cut is taken, so that none is truncated during it.

TRUNCATE, and ALTER TABLE if it rewrites, keep no old rows for old snapshots: a table truncated
after the cut is empty in it, although the cut's snapshot does not see the TRUNCATE. An ACCESS SHARE
lock blocks only these until the cut ends; readers and writers continue.

    lock .. snapshot .. TRUNCATE waits .. read, apply, commit .. TRUNCATE .. next cut: a T is in the
    slice

We wait for a transaction that has truncated and not committed. Each wait is shorter than the
server's deadlock_timeout, and then all locks are released: so in a deadlock we give way. If a
source cannot be locked, its readers are skipped and the others are refreshed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import Rollback, errors, sql

from millstream.errors import LockNotHad
from millstream.postgres.composed import listed
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name

# Tries to lock all tables together; then as many tries without those that cannot be locked.
TRIES = 4
LOCK_TIMEOUT = "500ms"
# How long a write to a stream table then waits for a lock on it: meanwhile, others wait for the
# locks of the cut.
WRITE_TIMEOUT = "3s"


@contextmanager
def hold_sources(
    conn: Connection, tables: Sequence[Name], written: Sequence[Name] = ()
) -> Iterator[frozenset[Name]]:
    """Open a REPEATABLE READ transaction without a snapshot that locks these tables; yield those it
    could not lock.

    The tables in `written` are locked too, so that no other session adds a trigger, a rule or an
    index to them.
    """
    busy: frozenset[Name] = frozenset()
    for attempt in range(2 * TRIES):
        if attempt >= TRIES:
            busy |= {table for table in tables if not _can_be_locked(conn, [table], [])}
            busy |= {table for table in written if not _can_be_locked(conn, [], [table])}
        with conn.transaction():
            if _lock(
                conn, *([one for one in each if one not in busy] for each in (tables, written))
            ):
                yield busy
                return
            # The whole transaction, not a savepoint: psycopg then deallocates what it had prepared,
            # and DEALLOCATE takes a snapshot. Here it does so outside.
            raise Rollback
    raise LockNotHad.by_reader(", ".join(str(table) for table in tables))


def _can_be_locked(conn: Connection, tables: Sequence[Name], written: Sequence[Name]) -> bool:
    with conn.transaction(force_rollback=True):
        return _lock(conn, tables, written)


def _lock(conn: Connection, tables: Sequence[Name], written: Sequence[Name]) -> bool:
    """Lock all tables; return False if that takes too long, or if one was renamed or dropped
    meanwhile.
    """
    locks = sql.SQL("").join(
        _LOCK.format(
            timeout=sql.Literal(LOCK_TIMEOUT),
            mode=mode,
            tables=listed(one.identifier for one in each),
        )
        for mode, each in ((sql.SQL("ACCESS SHARE"), tables), (sql.SQL("ROW EXCLUSIVE"), written))
        if each
    )
    try:
        conn.execute(
            _REPEATABLE + locks + _WRITE.format(timeout=sql.Literal(WRITE_TIMEOUT)), prepare=False
        )
    except (errors.LockNotAvailable, errors.UndefinedTable):
        return False
    return True


# No statement here takes a snapshot; a SELECT would.
_REPEATABLE = sql.SQL("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;")
_LOCK = sql.SQL("SET LOCAL lock_timeout = {timeout}; LOCK TABLE {tables} IN {mode} MODE;")
_WRITE = sql.SQL("SET LOCAL lock_timeout = {timeout}")
