"""Lock the sources before the cut is taken, so that none is truncated during it.

TRUNCATE, and ALTER TABLE if it rewrites, keep no old rows for old snapshots: a table truncated after the cut is empty
in it, although the cut's snapshot does not see the TRUNCATE. An ACCESS SHARE lock blocks only these until the cut ends;
readers and writers continue.

    lock .. snapshot .. TRUNCATE waits .. read, apply, commit .. TRUNCATE .. next cut: a T is in the slice

We wait for a transaction that has truncated and not committed. Each wait is shorter than the server's deadlock_timeout,
and then all locks are released: so in a deadlock we give way. If a source cannot be locked, its readers are skipped
and the others are refreshed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import Rollback, errors, sql

from millstream.errors import LockNotHad
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name

# Waits for all sources together; as many again without those that are not to be had.
TRIES = 4
LOCK_TIMEOUT = "500ms"
# After that: how long a write to a stream table waits for another lock on it, while all others wait for us.
WRITE_TIMEOUT = "3s"


@contextmanager
def hold_sources(conn: Connection, tables: Sequence[Name], written: Sequence[Name] = ()) -> Iterator[frozenset[Name]]:
    """Open a REPEATABLE READ transaction without a snapshot that locks these tables; yield those it could not lock.

    Those to be `written` are locked against triggers, rules and indexes that others might put on them.
    """
    busy: frozenset[Name] = frozenset()
    for attempt in range(2 * TRIES):
        if attempt >= TRIES:
            busy |= {table for table in tables if not _can_be_had(conn, [table], [])}
            busy |= {table for table in written if not _can_be_had(conn, [], [table])}
        with conn.transaction():
            if _locked(conn, *([one for one in each if one not in busy] for each in (tables, written))):
                yield busy
                return
            # The whole transaction, not a savepoint: psycopg then deallocates what it had prepared, and DEALLOCATE
            # takes a snapshot. Here it does so outside.
            raise Rollback
    raise LockNotHad.by_reader(", ".join(str(table) for table in tables))


def _can_be_had(conn: Connection, tables: Sequence[Name], written: Sequence[Name]) -> bool:
    with conn.transaction(force_rollback=True):
        return _locked(conn, tables, written)


def _locked(conn: Connection, tables: Sequence[Name], written: Sequence[Name]) -> bool:
    """Lock them all; False where that takes too long, or where one was renamed or dropped meanwhile."""
    locks = sql.SQL("").join(
        _LOCK.format(
            timeout=sql.Literal(LOCK_TIMEOUT), mode=mode, tables=sql.SQL(", ").join(one.identifier for one in each)
        )
        for mode, each in ((sql.SQL("ACCESS SHARE"), tables), (sql.SQL("ROW EXCLUSIVE"), written))
        if each
    )
    try:
        conn.execute(_REPEATABLE + locks + _WRITE.format(timeout=sql.Literal(WRITE_TIMEOUT)), prepare=False)
    except (errors.LockNotAvailable, errors.UndefinedTable):
        return False
    return True


# No statement here takes a snapshot; a SELECT would.
_REPEATABLE = sql.SQL("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;")
_LOCK = sql.SQL("SET LOCAL lock_timeout = {timeout}; LOCK TABLE {tables} IN {mode} MODE;")
_WRITE = sql.SQL("SET LOCAL lock_timeout = {timeout}")
