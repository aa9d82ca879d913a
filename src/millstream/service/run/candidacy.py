"""The lock of the leader: a standby tries to take it, the leader checks that it still holds it.

    standby    tries to take the lock twice a second, and ends the session of a leader that has been silent for 3 s:
               its process hangs, or its machine or network has failed
    leader     executes a statement in the session of the lock twice a second, so that it is never silent; if it
               gets no answer for 3 s, it stops by itself

So a standby leads at most 5 s after the leader was lost. The two clocks need not agree: a former
leader cannot commit because of the epoch (see `catalog.processes.leadership`), which each of our
transactions locks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from uuid import UUID

import psycopg

from millstream.catalog.processes import leadership
from millstream.catalog.processes.leadership import Epoch
from millstream.catalog.processes.mutex import Mutex
from millstream.observe import log
from millstream.postgres.connection import Connection, hang_up

# Seconds between two tries of a standby, between two statements of the leader, and without an
# answer until either regards the leader as lost.
TRY, BEAT, SILENCE = 0.5, 0.5, 3.0
# Seconds after which a main loop that makes no progress loses the leadership to a standby.
STUCK = 60.0


class LeadershipLost(Exception):
    """Another process may lead by now."""


def session_names(instance: UUID) -> str:
    """Return the common prefix of the application names of all sessions of a process."""
    return f"millstream run {str(instance)[:13]}"


def take_over(conn: Connection, instance: UUID, lock: int, heartbeat: LeaderHeartbeat) -> Epoch:
    """Begin an epoch; `lock` is the server process that holds the lock of the leader.

    The sessions of the former leader are terminated before, so that the takeover does not wait for
    its transactions, and again afterwards, since it may have opened others meanwhile. After that it
    can open sessions, but commits nothing in them.
    """
    former = leadership.former_leader(conn)
    while heartbeat.holds():
        end_sessions_of(conn, former, keep=[lock])
        try:
            epoch = leadership.take_over(conn, instance)
        except psycopg.errors.LockNotAvailable:
            continue
        end_sessions_of(conn, former, keep=[lock])
        return epoch
    raise LeadershipLost


def end_sessions_of(conn: Connection, former: UUID | None, keep: Sequence[int] = ()) -> None:
    """Terminate the sessions of the former leader; its open transactions are rolled back."""
    ended = (
        leadership.end_sessions(conn, f"{session_names(former)}%", keep)
        if former is not None
        else 0
    )
    if ended:
        log.warning("sessions of the former leader ended", sessions=ended)


def end_silent(conn: Connection) -> None:
    """Terminate the session of a leader that has been silent for too long."""
    if (pid := leadership.end_silent_leader(conn, SILENCE)) is not None:
        log.warning("the leader was silent, its session was ended", backend_pid=pid)


class LeaderHeartbeat:
    """A thread that checks, in the session of the lock, that the lock is still held; calls `lost`
    once it is not.
    """

    def __init__(self, mutex: Mutex, lost: Callable[[], None]) -> None:
        self._mutex = mutex
        self._lost = lost
        self._answered_at = self._turned_at = time.monotonic()
        self._is_lost = False
        self._stop = Event()
        self._thread = Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; from now on only this thread uses the session."""
        self._answered_at = self._turned_at = time.monotonic()
        self._thread.start()

    def note_turn(self) -> None:
        """Note that the leader's loop is alive."""
        self._turned_at = time.monotonic()

    def holds(self) -> bool:
        """Return False once the lock is lost, or may be lost because no answer has come for too
        long.
        """
        return not self._is_lost and time.monotonic() - self._answered_at < SILENCE

    def stop(self) -> None:
        """End the thread; if it hangs in a statement, close that session."""
        self._stop.set()
        self._thread.join(BEAT * 2)
        if self._thread.is_alive():
            for conn in self._mutex.sessions():
                hang_up(conn)
            self._thread.join(BEAT * 2)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT):
            try:
                held = self._mutex.is_held()
            except psycopg.Error:
                held = False
            if held and time.monotonic() - self._turned_at > STUCK:
                log.error("the leader's loop does not go on, its lock is given back", seconds=STUCK)
                for conn in self._mutex.sessions():
                    hang_up(conn)
                held = False
            if not held:
                self._is_lost = True
                self._lost()
                return
            self._answered_at = time.monotonic()
