"""Mutual exclusion between processes of Millstream, by locks that only the service role can take.

Any role that may connect can take any advisory lock, and so block us by its key. Our locks are on
tables and views of our own schema, which no other role may lock:

    what                        lock                                    while it is held
    a stream table, for as      its row in millstream.locks,            the session has a transaction id, so vacuum
    long as work on it takes    FOR UPDATE                              waits, as it does for the refresh itself
    one process of a database,  a view without rows,                    no transaction id and no snapshot: it may be
    for months if need be       SHARE UPDATE EXCLUSIVE                  held for ever, and nothing waits for it

A separate session holds the locks, from the start to the end of a `with` block, while the work uses
any number of transactions in other sessions. Blocks may be nested: the locks of an inner one are
released with the outermost. A lock ends with its connection: at once if the process is killed,
after half a minute if its machine is gone.

    with Mutex(dsn) as mutex:
        with mutex.stream_tables([17, 18]) as free: ...       # those of them that nobody works on
        with mutex.exclusive("leader") as is_mine: ...        # tried once, or for as long as `patience` says

A lock that is held for a long time needs a Mutex of its own: a row locked inside its block would
give that session a transaction id for as long as the block lasts. So the leader opens a Mutex for
`exclusive("leader")` only. A standby tries to enter it again and again, and takes over when the
leader's session ends. Before each tick the leader calls `is_held()`.

If the session is lost during the work, another process may work on the same stream table. The rows
are still exact: both update the same row of the catalog in REPEATABLE READ transactions, so the
second to commit fails with a serialization failure, and is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Literal, Self

import psycopg
from psycopg import errors, sql

from millstream.errors import Busy
from millstream.postgres.connection import Connection, session
from millstream.postgres.sql_files import load
from millstream.postgres.table_locks import Patience

Name = Literal["leader", "transitions"]

# Try once, without waiting.
ONCE = Patience(seconds=0.0)

_SQL = load("millstream.catalog.processes", "mutex.sql")


class Mutex:
    """A session that holds locks for the work of its process. Use it from one thread at a time."""

    def __init__(
        self, dsn: str, *, application_name: str = "millstream locks", held: set[int] | None = None
    ) -> None:
        self.dsn = dsn
        self.application_name = application_name
        self.held = held if held is not None else set[int]()
        """The stream tables whose locks this process holds, by this object or by others that share the set."""
        self._own = set[int]()
        self._depth = 0
        self._conn: Connection | None = None

    @property
    def owner(self) -> str:
        """Return the common prefix of the application names of all Mutexes of this process."""
        return self.application_name.partition(" locks")[0] + " locks"

    # -- stream tables -----------------------------------------------------------------------

    @contextmanager
    def stream_tables(self, ids: Sequence[int], patience: Patience = ONCE) -> Iterator[set[int]]:
        """Hold the locks on these stream tables, except those that are not free before patience
        ends.
        """
        with self._transaction() as conn:
            taken = _take_rows(conn, ids)
            if len(taken) < len(set(ids)):
                _tried(lambda: _take_more(conn, ids, taken), patience)
            yield taken

    @contextmanager
    def stream_table(self, id: int, name: str, patience: Patience = ONCE) -> Iterator[None]:
        """Hold the lock on one stream table, or raise Busy with who holds it."""
        with self._transaction() as conn:
            if not _tried(lambda: bool(self._take(conn, [id])), patience):
                raise Busy.working_on(name, self.holders([id]).get(id), patience.seconds)
            yield

    def holders(self, ids: Sequence[int]) -> dict[int, str]:
        """Return who works on these stream tables: process, application, host, and since when."""
        found = self._connected().execute(_SQL["row_holders"], (list(ids),))
        return {id: who for id, who in found if who}

    def remove_rows(self) -> None:
        """Remove the locks of dropped stream tables."""
        self._connected().execute(_SQL["remove_rows"])

    # -- one process of a database -----------------------------------------------------------

    @contextmanager
    def exclusive(self, name: Name, patience: Patience = ONCE) -> Iterator[bool]:
        """Hold the lock of that name; yield False if another process holds it."""
        with self._transaction() as conn:
            yield _tried(lambda: _take_view(conn, name), patience)

    def holder(self, name: Name) -> str | None:
        """Return which other session holds the lock of this name, if any: process, application,
        host, and since when.
        """
        row = (
            self._connected()
            .execute(_SQL["view_holder"], (f"millstream.lock_of_{name}",))
            .fetchone()
        )
        return row[0] if row else None

    def is_held(self) -> bool:
        """Return True if the session still exists, and so holds its locks."""
        try:
            return (
                self._conn is not None and self._conn.execute("SELECT true").fetchone() is not None
            )
        except psycopg.Error:
            return False

    def backend_pid(self) -> int:
        """Return the server process that holds the locks."""
        return self._connected().info.backend_pid

    # -- the session -------------------------------------------------------------------------

    def sessions(self) -> list[Connection]:
        """Return the session, if there is one."""
        return [self._conn] if self._conn is not None else []

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Hold a transaction open for the block, a savepoint within another block."""
        conn = self._connected()
        transaction = conn.transaction()
        transaction.__enter__()
        self._depth += 1
        try:
            yield conn
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.held -= self._own
                self._own.clear()
            # Also after an error. A lost session has released its locks already.
            with suppress(psycopg.OperationalError):
                transaction.__exit__(None, None, None)

    def _take(self, conn: Connection, ids: Sequence[int]) -> set[int]:
        taken = _take_rows(conn, ids)
        self._own |= taken
        self.held |= taken
        return taken

    def _connected(self) -> Connection:
        if self._conn is not None and _is_lost(self._conn):
            self.close()
        if self._conn is None:
            self._conn = _opened(self.dsn, self.application_name)
        return self._conn

    def close(self) -> None:
        """Release all locks."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _opened(dsn: str, application_name: str) -> Connection:
    conn = session(dsn)
    conn.execute("SELECT set_config('application_name', %s, false)", (application_name,))
    # It commits only rows that are inserted again if they are missing, and waits only for a session
    # that inserts the same row.
    conn.execute("SET synchronous_commit = off; SET lock_timeout = '50ms'")
    return conn


def _is_lost(conn: Connection) -> bool:
    # An error is what a lost session gives; the last line tells.
    with suppress(psycopg.OperationalError):
        # These do not wait. The first reads the server's last messages, the second finds that the
        # connection was closed.
        conn.pgconn.consume_input()
        conn.pgconn.consume_input()
    return conn.closed or conn.broken


def _tried(attempt: Callable[[], bool], patience: Patience) -> bool:
    """Call the function until it succeeds, or until patience ends."""
    deadline = time.monotonic() + patience.seconds
    number = 0
    while not attempt():
        pause = patience.pause(number)
        if time.monotonic() + pause > deadline:
            return False
        time.sleep(pause)
        number += 1
    return True


def _take_rows(conn: Connection, ids: Sequence[int]) -> set[int]:
    taken = {id for (id,) in conn.execute(_SQL["take_rows"], (list(ids),))}
    rest = sorted(set(ids) - taken)
    absent = [id for (id,) in conn.execute(_SQL["absent"], (rest,))] if rest else []
    return taken | {id for id in absent if _add_row(conn, id)}


def _take_more(conn: Connection, ids: Sequence[int], taken: set[int]) -> bool:
    """Take the locks that were not free before; return True if none is missing."""
    taken |= _take_rows(conn, sorted(set(ids) - taken))
    return taken >= set(ids)


def _add_row(conn: Connection, id: int) -> bool:
    """Insert the missing row of a stream table. No other session can lock it before the commit."""
    try:
        with conn.transaction():
            return conn.execute(_SQL["add_row"], (id,)).fetchone() is not None
    except errors.LockNotAvailable:
        return False


def _take_view(conn: Connection, name: Name) -> bool:
    lock = sql.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT")
    try:
        with conn.transaction():
            conn.execute(lock.format(sql.Identifier("millstream", f"lock_of_{name}")))
    except errors.LockNotAvailable:
        return False
    return True
