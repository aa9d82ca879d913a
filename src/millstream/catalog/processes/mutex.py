"""Mutual exclusion between processes of Millstream, by locks that only the service role can take.

Anybody who may connect can take any advisory lock, so a guessed key would hang us. Ours are locks
on tables and views of our own schema, which nobody else may lock:

    what                        lock                                    while it is held
    a stream table, for as      its row in millstream.locks,            the session has a transaction id, so vacuum
    long as work on it takes    FOR UPDATE                              waits, as it does for the refresh itself
    one process of a database,  a view without rows,                    no transaction id and no snapshot: it may be
    for months if need be       SHARE UPDATE EXCLUSIVE                  held for ever, and nothing waits for it

Locks are held by a session of their own, from the start to the end of a `with` block, over as many
transactions of other sessions as the work takes. Blocks may be nested: what an inner one has taken
is given back with the outermost. A lock ends with its connection, at once when the process is
killed, after half a minute when its machine is gone.

    with Mutex(dsn) as mutex:
        with mutex.stream_tables([17, 18]) as free: ...       # those of them that nobody works on
        with mutex.exclusive("leader") as is_mine: ...        # tried once, or for as long as `patience` says

A lock that is held for long has a Mutex of its own: a row locked inside its block would give that
session a transaction id for as long as the block lasts. So a leader opens one, enters
`exclusive("leader")` and stays there; a standby tries again and again, and takes over when the
leader's session ends. Before each round of work the leader asks `is_held()`.

What happens when the session is lost while the work goes on? Another process may then work on the
same stream table. No row comes out wrong: both move the same row of the catalog in REPEATABLE READ
transactions, and the later one to commit fails with a serialization failure, and is tried again.
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

# One try and no wait.
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
        """How the application names of all Mutexes of this process begin."""
        return self.application_name.partition(" locks")[0] + " locks"

    # -- stream tables -----------------------------------------------------------------------

    @contextmanager
    def stream_tables(self, ids: Sequence[int], patience: Patience = ONCE) -> Iterator[set[int]]:
        """Hold the locks on those of these stream tables that are free before patience ends."""
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
        """Hold the lock of that name; False where another process does."""
        with self._transaction() as conn:
            yield _tried(lambda: _take_view(conn, name), patience)

    def holder(self, name: Name) -> str | None:
        """Return who else holds the lock of this name, if anyone: process, application, host, and
        since when.
        """
        row = (
            self._connected()
            .execute(_SQL["view_holder"], (f"millstream.lock_of_{name}",))
            .fetchone()
        )
        return row[0] if row else None

    def is_held(self) -> bool:
        """Return whether the session still lives, and with it every lock that it has taken."""
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
            # However the work ended. A lost session has released its locks already.
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
        """Give everything back."""
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
    # It commits only rows that are made again where they are missing; it never waits but for
    # whoever inserts the same.
    conn.execute("SET synchronous_commit = off; SET lock_timeout = '50ms'")
    return conn


def _is_lost(conn: Connection) -> bool:
    # An error is what a lost session gives; the last line tells.
    with suppress(psycopg.OperationalError):
        # Does not wait. The first takes in what the server said at the end, the second that it has
        # ended.
        conn.pgconn.consume_input()
        conn.pgconn.consume_input()
    return conn.closed or conn.broken


def _tried(attempt: Callable[[], bool], patience: Patience) -> bool:
    """Try until it succeeds, or until patience ends."""
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
    """Take those that were not to be had before; return True if none is left."""
    taken |= _take_rows(conn, sorted(set(ids) - taken))
    return taken >= set(ids)


def _add_row(conn: Connection, id: int) -> bool:
    """Insert the missing row of a stream table. Until we commit, no other session can lock it."""
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
