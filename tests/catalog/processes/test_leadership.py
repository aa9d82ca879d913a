"""Who leads, and that a process that no longer leads cannot commit."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import psycopg
import pytest

from millstream.catalog.installation import install
from millstream.catalog.processes import leadership
from millstream.catalog.processes.leadership import Epoch
from millstream.errors import Deposed
from millstream.postgres.connection import Connection, connect
from millstream.testing.waiting import wait_until

Open = Callable[[], Connection]


@pytest.fixture
def registered(conn: Connection, another: Open) -> tuple[Connection, UUID]:
    """A session of a service that has registered."""
    install.install(conn)
    session, instance = another(), uuid4()
    register(session, instance)
    return session, instance


def register(conn: Connection, instance: UUID) -> None:
    backend = conn.info.backend_pid
    leadership.register(conn, leadership.Registration(instance, 1, "here", "0", backend))


def test_a_takeover_begins_an_epoch_and_is_shown(
    conn: Connection, registered: tuple[Connection, UUID]
) -> None:
    session, instance = registered
    assert [one.role for one in leadership.services(conn)] == ["STANDBY"]
    first = leadership.take_over(session, instance)
    [shown] = leadership.services(conn)
    assert (first, shown.instance, shown.role, shown.alive) == (Epoch(1), instance, "LEADER", True)
    assert leadership.former_leader(conn) == instance


def test_a_second_takeover_leaves_one_leader(
    conn: Connection, registered: tuple[Connection, UUID], another: Open
) -> None:
    session, instance = registered
    leadership.take_over(session, instance)
    other, successor = another(), uuid4()
    register(other, successor)
    assert leadership.take_over(other, successor) == Epoch(2)
    assert {one.instance: one.role for one in leadership.services(conn)} == {
        instance: "STANDBY",
        successor: "LEADER",
    }


def test_a_former_leader_cannot_commit(
    conn: Connection, registered: tuple[Connection, UUID]
) -> None:
    session, instance = registered
    former = leadership.take_over(session, instance)
    with session.transaction():
        former.hold(session)
    leadership.take_over(session, instance)
    with pytest.raises(Deposed), session.transaction():
        former.hold(session)


def test_a_cut_older_than_the_takeover_cannot_commit(
    conn: Connection, registered: tuple[Connection, UUID], another: Open
) -> None:
    session, instance = registered
    former = leadership.take_over(session, instance)
    cut = another()
    cut.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    cut.execute("SELECT pg_current_snapshot()")
    leadership.take_over(session, instance)
    with pytest.raises(Deposed):
        former.hold(cut)


def test_a_takeover_waits_for_a_transaction_of_the_epoch(
    conn: Connection, registered: tuple[Connection, UUID], another: Open
) -> None:
    session, instance = registered
    epoch = leadership.take_over(session, instance)
    working = another()
    with working.transaction():
        epoch.hold(working)
        conn.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            leadership.take_over(conn, uuid4())
    assert leadership.take_over(conn, instance) == Epoch(2)


def test_sessions_that_a_former_leader_has_left_are_ended(conn: Connection, database: str) -> None:
    left = connect(database, application_name="millstream run 12ab refresh")
    assert leadership.end_sessions(conn, "millstream run 12ab%") == 1
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")


def test_a_silent_leader_is_ended_and_its_row_removed(
    conn: Connection, registered: tuple[Connection, UUID], another: Open
) -> None:
    session, instance = registered
    leadership.take_over(session, instance)
    assert leadership.end_silent_leader(conn, 3600) is None
    assert leadership.end_silent_leader(conn, 0) == session.info.backend_pid
    with pytest.raises(psycopg.OperationalError):
        session.execute("SELECT 1")
    wait_until(lambda: not [one for one in leadership.services(conn) if one.alive])
    successor, new = another(), uuid4()
    register(successor, new)
    assert [one.instance for one in leadership.services(conn)] == [new]
