"""Take a lock on tables without making their writers wait.

A lock request that waits makes every later writer queue behind it, however short its own work is.
So each attempt waits only for `lock_timeout`, then rolls back, and tries again after a pause that
grows and varies. The work under the lock starts again with each attempt.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

from psycopg import errors, sql
from psycopg.pq import TransactionStatus

from millstream.errors import LockNotHad
from millstream.postgres import fence
from millstream.postgres.composed import listed
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load

Mode = Literal["SHARE ROW EXCLUSIVE", "ACCESS EXCLUSIVE"]
T = TypeVar("T")

_SQL = load("millstream.postgres", "table_locks.sql")


@dataclass(frozen=True)
class Patience:
    """How long one attempt may hold up writers, and how long we go on trying."""

    lock_timeout: float = 0.2
    seconds: float = 30.0
    first_pause: float = 0.05
    longest_pause: float = 1.0

    def __post_init__(self) -> None:
        if self.lock_timeout <= 0 or self.seconds < 0 or self.first_pause <= 0:
            raise ValueError("patience is measured in positive seconds")

    def pause(self, attempt: int) -> float:
        """Return the wait after an attempt (the first is 0): doubling, with jitter."""
        longest = min(self.first_pause * 2.0 ** min(attempt, 30), self.longest_pause)
        return longest * random.uniform(0.5, 1.0)


PATIENT = Patience()


@contextmanager
def read_committed(conn: Connection) -> Iterator[None]:
    """Open a READ COMMITTED transaction, whatever the server's default.

    Under a lock, statements must see the present, not the state when we began to wait for the lock.
    Within a transaction of the caller's it is a savepoint, and the caller's isolation stands. The
    session's fence is held at its end; of a savepoint the caller holds it.
    """
    is_outermost = conn.info.transaction_status == TransactionStatus.IDLE
    with conn.transaction():
        if is_outermost:
            conn.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield
        if is_outermost:
            fence.hold(conn)


@contextmanager
def waiting_at_most(conn: Connection, seconds: float) -> Iterator[None]:
    """Open a transaction or savepoint in which a statement raises LockNotAvailable after this time."""
    with conn.transaction():
        former = conn.execute("SELECT current_setting('lock_timeout')").fetchall()[0][0]
        setting = "SELECT set_config('lock_timeout', %s, true)"
        conn.execute(setting, (f"{round(seconds * 1000)}ms",))
        yield
        conn.execute(setting, (former,))


def under_lock(
    conn: Connection,
    tables: Sequence[Name],
    mode: Mode,
    work: Callable[[], T],
    patience: Patience = PATIENT,
) -> T:
    """Run `work` in a transaction that holds the lock on every table; try again while it is not to
    be had.
    """
    deadline = time.monotonic() + patience.seconds
    attempt = 0
    while True:
        try:
            return _attempt(conn, tables, mode, work, patience)
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            pause = patience.pause(attempt)
            if time.monotonic() + pause > deadline:
                raise _not_had(conn, tables, patience) from error
        time.sleep(pause)
        attempt += 1


def _attempt(
    conn: Connection, tables: Sequence[Name], mode: Mode, work: Callable[[], T], patience: Patience
) -> T:
    """Try once, in one transaction with its own settings."""
    milliseconds = f"{max(1, round(patience.lock_timeout * 1000))}ms"
    with read_committed(conn):
        before = _exchange(conn, milliseconds, "pg_catalog, pg_temp")
        if tables:
            names = listed(table.identifier for table in tables)
            conn.execute(sql.SQL("LOCK TABLE {} IN {} MODE").format(names, sql.SQL(mode)))
        result = work()
        _exchange(conn, *before)
    return result


def _exchange(conn: Connection, lock_timeout: str, search_path: str) -> tuple[str, str]:
    """Set both for the rest of the transaction; return what they were."""
    settings = "SELECT current_setting('lock_timeout'), current_setting('search_path')"
    timeout, path = conn.execute(settings).fetchall()[0]
    setting = "SELECT set_config('lock_timeout', %s, true), set_config('search_path', %s, true)"
    conn.execute(setting, (lock_timeout, search_path))
    return timeout, path


def _not_had(conn: Connection, tables: Sequence[Name], patience: Patience) -> LockNotHad:
    """Return the error, which names the sessions that hold the lock, as far as our role may see
    them.
    """
    held = holders(conn, [table.oid for table in tables])
    return LockNotHad.on(", ".join(str(table) for table in tables), patience.seconds, holders=held)


def holders(conn: Connection, oids: Sequence[int] | None = None) -> list[str]:
    """Return who holds conflicting locks on these relations, or on any: process, application, since
    when.
    """
    return [
        row[0]
        for row in conn.execute(_SQL["holders"], {"oids": None if oids is None else list(oids)})
    ]
