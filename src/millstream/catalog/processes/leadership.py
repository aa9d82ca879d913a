"""Which process refreshes by schedule, and the epoch that prevents a former one from committing.

Each process of `millstream run` has a row in `millstream.services`. The one that holds the lock
`leader` (see `mutex`) is the leader. Before it does anything else, it raises the epoch in
`millstream.leadership`.

A process may have lost the lock without knowing it: its machine was suspended, or its connection
was lost. So every transaction in which the service commits rows or an answer first locks the row of
its epoch. A new leader cannot raise the epoch before those transactions have ended, and the former
leader cannot begin others afterwards. The new leader does not wait for them: it terminates the
sessions of the former one.

`pg_stat_activity` shows whether a leader is alive: the session that holds the lock executes a
statement every second. Nothing is written for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import psycopg

from millstream.errors import Deposed
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Role = Literal["LEADER", "STANDBY"]

_SQL = load("millstream.catalog.processes", "leadership.sql")


@dataclass(frozen=True)
class Epoch:
    """The leadership of one process, from its takeover until the next one."""

    number: int

    def hold(self, conn: Connection) -> None:
        """Prevent a new epoch until the transaction ends; raise Deposed if one has begun."""
        try:
            held = conn.execute(_SQL["hold"], (self.number,)).fetchone()
        except psycopg.errors.SerializationFailure as error:
            # The snapshot of the cut is older than the takeover.
            raise Deposed.in_epoch(self.number) from error
        if held is None:
            raise Deposed.in_epoch(self.number)


@dataclass(frozen=True)
class ServiceProcess:
    """One process of `millstream run`, as it has registered."""

    instance: UUID
    pid: int
    host: str
    version: str
    role: Role
    started_at: datetime
    last_tick_at: datetime | None
    alive: bool
    """True if its session exists."""
    silent_seconds: float
    """Since that session last executed a statement; 0 where the server does not tell."""


@dataclass(frozen=True)
class Registration:
    """What a process records about itself: its id, its host, and the session that holds its lock."""

    instance: UUID
    pid: int
    host: str
    version: str
    backend_pid: int


def register(conn: Connection, process: Registration) -> None:
    """Insert the row of this process, or update its session; remove rows of processes that have
    ended.
    """
    conn.execute(_SQL["register"], asdict(process))
    conn.execute(_SQL["remove_gone"])


def withdraw(conn: Connection, instance: UUID) -> None:
    """Remove the row of this process, which stops."""
    conn.execute(_SQL["withdraw"], (instance,))


def services(conn: Connection) -> list[ServiceProcess]:
    """Return the processes that have registered, the leader first."""
    return [ServiceProcess(*row) for row in conn.execute(_SQL["services"])]


def take_over(conn: Connection, instance: UUID) -> Epoch:
    """Begin a new epoch. The caller holds the lock `leader`.

    Raise LockNotAvailable if a transaction of the former leader does not end within a second.
    """
    with conn.transaction():
        conn.execute("SET LOCAL lock_timeout = '1s'")
        row = conn.execute(_SQL["take_over"], (instance,)).fetchone()
        conn.execute(_SQL["set_roles"], (instance,))
    assert row is not None, "there is one row of leadership"
    return Epoch(row[0])


def note_tick(conn: Connection, instance: UUID) -> None:
    """Record the time of the leader's last tick."""
    conn.execute(_SQL["note_tick"], (instance,))


def end_silent_leader(conn: Connection, seconds: float) -> int | None:
    """Terminate the session of a leader that has been silent for so long; return its process id, or
    None if there is none.
    """
    row = conn.execute(_SQL["end_silent_leader"], (seconds,)).fetchone()
    return row[0] if row else None


def end_sessions(conn: Connection, application_names: str, keep: Sequence[int] = ()) -> int:
    """Terminate the sessions whose application name is LIKE this, except these processes; return
    how many.
    """
    return len(conn.execute(_SQL["end_sessions"], (application_names, list(keep))).fetchall())


def former_leader(conn: Connection) -> UUID | None:
    """Return the instance that has begun the current epoch."""
    row = conn.execute(_SQL["former_leader"]).fetchone()
    return row[0] if row else None
