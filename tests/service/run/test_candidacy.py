"""Who leads, seen from the lock."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from uuid import uuid4

from millstream.catalog import leadership
from millstream.catalog.installation import install
from millstream.catalog.mutex import Mutex
from millstream.postgres.connection import Connection
from millstream.service.run.candidacy import Heartbeat, end_former, end_silent, session_names
from millstream.testing.waiting import wait_until


def test_a_lock_whose_session_was_ended_is_noticed(conn: Connection, database: str) -> None:
    install.install(conn)
    lost = Event()
    with Mutex(database) as lock, lock.exclusive("leader") as is_ours:
        assert is_ours
        pid = lock.backend_pid()
        heartbeat = Heartbeat(lock, lost.set)
        heartbeat.start()
        assert heartbeat.holds()
        conn.execute("SELECT pg_terminate_backend(%s)", (pid,))
        assert lost.wait(90)
        assert not heartbeat.holds()
        heartbeat.stop()


def test_a_leader_that_beats_is_not_silent_and_one_that_hangs_is_ended(conn: Connection, database: str) -> None:
    install.install(conn)
    instance = uuid4()
    with Mutex(database) as lock, lock.exclusive("leader"):
        backend = lock.backend_pid()
        leadership.register(conn, instance, pid=1, host="here", version="0", backend_pid=backend)
        leadership.take_over(conn, instance)
        # Nobody beats.
        wait_until(lambda: has_ended(conn))


def has_ended(conn: Connection) -> bool:
    end_silent(conn)
    return not leadership.services(conn)[0].alive


def test_the_sessions_of_the_former_leader_are_ended_and_no_others(
    conn: Connection, another: Callable[[], Connection]
) -> None:
    install.install(conn)
    instance, successor = uuid4(), uuid4()
    left, other = another(), another()
    for session, of in ((left, instance), (other, successor)):
        session.execute("SELECT set_config('application_name', %s, false)", (f"{session_names(of)} worker",))
    leadership.register(conn, instance, pid=1, host="here", version="0", backend_pid=left.info.backend_pid)
    leadership.take_over(conn, instance)
    end_former(conn, instance)
    assert left.execute("SELECT 1").fetchone() == (1,), "it leads itself"
    end_former(conn, successor)
    alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    wait_until(lambda: conn.execute(alive, (left.info.backend_pid,)).fetchall() == [(0,)])
    assert other.execute("SELECT 1").fetchone() == (1,)
