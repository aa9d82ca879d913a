"""Who leads, seen from the lock."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from uuid import uuid4

import psycopg
import pytest

from millstream.catalog.installation import install
from millstream.catalog.processes import leadership
from millstream.catalog.processes.mutex import Mutex
from millstream.postgres.connection import Connection
from millstream.service.run import candidacy
from millstream.service.run.candidacy import (
    LeaderHeartbeat,
    LeadershipLost,
    end_sessions_of,
    end_silent,
    session_names,
    take_over,
)
from millstream.testing.waiting import wait_until


def test_a_lock_whose_session_was_ended_is_noticed(conn: Connection, database: str) -> None:
    install.install(conn)
    lost = Event()
    with Mutex(database) as lock, lock.exclusive("leader") as is_ours:
        assert is_ours
        pid = lock.backend_pid()
        heartbeat = LeaderHeartbeat(lock, lost.set)
        heartbeat.start()
        assert heartbeat.holds()
        conn.execute("SELECT pg_terminate_backend(%s)", (pid,))
        assert lost.wait(90)
        assert not heartbeat.holds()
        heartbeat.stop()


def test_a_leader_that_beats_is_not_silent_and_one_that_hangs_is_ended(
    conn: Connection, database: str
) -> None:
    install.install(conn)
    instance = uuid4()
    with Mutex(database) as lock, lock.exclusive("leader"):
        backend = lock.backend_pid()
        leadership.register(conn, leadership.Registration(instance, 1, "here", "0", backend))
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
        session.execute(
            "SELECT set_config('application_name', %s, false)", (f"{session_names(of)} worker",)
        )
    leadership.register(
        conn, leadership.Registration(instance, 1, "here", "0", left.info.backend_pid)
    )
    leadership.take_over(conn, instance)
    end_sessions_of(conn, instance, keep=[left.info.backend_pid])
    assert left.execute("SELECT 1").fetchone() == (1,), "it is to be kept"
    end_sessions_of(conn, None)
    end_sessions_of(conn, instance)
    alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    wait_until(lambda: conn.execute(alive, (left.info.backend_pid,)).fetchall() == [(0,)])
    assert other.execute("SELECT 1").fetchone() == (1,)


def test_a_transaction_of_the_former_leader_does_not_hold_up_the_takeover(
    conn: Connection, another: Callable[[], Connection], database: str
) -> None:
    install.install(conn)
    instance, successor, left = uuid4(), uuid4(), another()
    leadership.register(
        conn, leadership.Registration(instance, 1, "here", "0", left.info.backend_pid)
    )
    epoch = leadership.take_over(conn, instance)
    left.execute("SELECT set_config('application_name', %s, false)", (session_names(instance),))
    left.execute("BEGIN")
    epoch.hold(left)
    with Mutex(database) as lock:
        heartbeat = LeaderHeartbeat(lock, lambda: None)
        assert take_over(conn, successor, lock.backend_pid(), heartbeat).number == epoch.number + 1
    with pytest.raises(psycopg.OperationalError):
        left.execute("COMMIT")


def test_a_takeover_does_not_wait_longer_than_its_lock_is_held(
    conn: Connection, another: Callable[[], Connection], database: str
) -> None:
    install.install(conn)
    epoch, stranger = leadership.take_over(conn, uuid4()), another()
    stranger.execute("BEGIN")
    epoch.hold(stranger)
    with Mutex(database) as lock, pytest.raises(LeadershipLost):
        # Nobody beats, so that the lock counts as lost after three seconds.
        take_over(conn, uuid4(), lock.backend_pid(), LeaderHeartbeat(lock, lambda: None))


def test_a_loop_that_does_not_go_on_gives_the_lock_back(
    conn: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.install(conn)
    monkeypatch.setattr(candidacy, "STUCK", 0.0)
    lost = Event()
    with Mutex(database) as lock, lock.exclusive("leader"):
        heartbeat = LeaderHeartbeat(lock, lost.set)
        heartbeat.start()
        assert lost.wait(90)
        with Mutex(database) as standby:
            wait_until(lambda: takes(standby))
        heartbeat.stop()


def takes(standby: Mutex) -> bool:
    with standby.exclusive("leader") as is_ours:
        return is_ours
