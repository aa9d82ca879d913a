"""Which requests wait for others, and what becomes of those whose execution fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import psycopg
import pytest

from millstream.catalog import requests as rows
from millstream.catalog.installation import install
from millstream.catalog.requests import Kind, OpenRequest
from millstream.errors import Busy
from millstream.postgres.connection import Connection
from millstream.service.app import App
from millstream.service.requests import answer
from millstream.service.run import desk
from millstream.service.run.desk import RequestDesk, may_begin
from millstream.settings import Settings
from millstream.testing.waiting import wait_until


def request(id: int, kind: Kind, name: str | None = "a") -> OpenRequest:
    return OpenRequest(id, kind, name)


def ids(waiting: list[OpenRequest], begun: list[OpenRequest] | None = None) -> list[int]:
    return [one.id for one in may_begin(waiting, begun or [])]


def test_what_changes_something_waits_for_what_changes_something() -> None:
    create, reader = request(1, "create", "a"), request(2, "create", "b")
    assert ids([create, reader]) == [1]
    assert ids([create, reader], [create]) == []
    assert ids([reader]) == [2]


def test_a_refresh_waits_for_changes_of_its_stream_table_before_it_and_for_no_others() -> None:
    alter = request(1, "alter", "a")
    waiting = [
        alter,
        request(2, "refresh", "b"),
        request(3, "refresh", 'public."A"'),
        request(4, "validate", None),
    ]
    assert ids(waiting) == [1, 2, 4]
    assert ids(waiting, [alter]) == [2, 4]
    assert ids([request(1, "refresh"), request(2, "drop")]) == [1, 2], (
        "the lock of the stream table decides"
    )


def test_a_name_with_blanks_is_the_same_name() -> None:
    assert ids([request(1, "drop", "a"), request(2, "refresh", ' public . "a" ')]) == [1]


def test_what_has_begun_is_not_begun_again() -> None:
    refresh = request(1, "refresh")
    assert ids([refresh, request(2, "verify")], [refresh]) == [2]


# -- errors ----------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The monotonic clock of the desk; it stands still."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(desk, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_an_application_that_cannot_be_opened_is_opened_again_after_a_pause(
    clock: SimpleNamespace,
) -> None:
    """The bug: the leader tried again at once, for as long as the server had no connection to
    spare.
    """
    tries, nowhere = list[int](), cast(Connection, None)

    def refused() -> App:
        tries.append(1)
        raise psycopg.OperationalError("too many clients")

    requests_of_nobody = RequestDesk(refused, lambda: None)
    requests_of_nobody.open()
    for number, pause in enumerate((1.0, 2.0, 4.0, 8.0, 15.0, 15.0), start=1):
        wait_until(lambda: requests_of_nobody.workers.has_finished)
        requests_of_nobody.look(nowhere)
        clock.now += pause * 0.99
        assert not requests_of_nobody.is_due()
        requests_of_nobody.look(nowhere)
        assert (len(tries), requests_of_nobody.workers.running) == (number, [])
        clock.now += pause * 0.02
        assert requests_of_nobody.is_due()
        requests_of_nobody.look(nowhere)
    requests_of_nobody.workers.wait(60)


def test_a_request_that_loses_its_connection_each_time_is_given_up(
    conn: Connection, database: str, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: the third time it stayed RUNNING, until another process took over."""
    install.install(conn)
    id = rows.send(conn, "validate", "", {"query": "SELECT 1"})
    tries = list[int]()

    def lose(asked: answer._OpenedRequest) -> rows.Document:
        tries.append(asked.request.tries)
        asked.app.conn.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setitem(answer._VERBS, "validate", lose)
    at_work = RequestDesk(lambda: App(database, Settings()), lambda: None)
    at_work.open()

    def error() -> rows.Document | None:
        at_work.look(conn)
        clock.now += 20.0
        return rows.look(conn, id).error

    try:
        told = wait_until(error)
        assert told is not None
        assert told["code"] == "MS504"
    finally:
        at_work.workers.close()
    assert tries == [0, 1, 2]


def test_a_request_that_must_wait_for_a_refresh_is_begun_again_after_a_second_and_lets_others_go_first(
    conn: Connection, database: str, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: it was answered with "in use by another session", by which the service meant itself."""
    install.install(conn)
    first, second = (
        rows.send(conn, "validate", "", {"query": query}) for query in ("SELECT 1", "SELECT 2")
    )
    executed, is_busy = list[tuple[int, int]](), [True]

    def validate(asked: answer._OpenedRequest) -> rows.Document:
        executed.append((asked.request.id, asked.request.tries))
        if asked.request.id == first and is_busy.pop():
            is_busy.append(True)
            raise Busy.working_on("a", "process 1 of this very service")
        return {}

    monkeypatch.setitem(answer._VERBS, "validate", validate)
    at_work = RequestDesk(lambda: App(database, Settings()), lambda: None)
    at_work.open()

    def look() -> bool:
        at_work.look(conn)
        return not at_work.workers.running and not at_work.workers.has_finished

    try:
        wait_until(lambda: look() and len(executed) == 2)
        assert (rows.look(conn, first).status, rows.look(conn, second).status) == (
            "WAITING",
            "DONE",
        )
        assert not at_work.is_due()
        clock.now += desk.BEGIN_AGAIN
        assert at_work.is_due()
        is_busy[:] = [False]
        wait_until(lambda: look() and rows.look(conn, first).status == "DONE")
    finally:
        at_work.workers.close()
    assert sorted(executed) == [(first, 0), (first, 0), (second, 0)]


def test_requests_are_taken_a_hundred_at_a_time_and_without_their_arguments(
    conn: Connection,
) -> None:
    """The bug: each look read all that waited, up to a megabyte of each."""
    install.install(conn)
    for _ in range(101):
        rows.send(conn, "validate", "", {"query": "SELECT 1"})
    assert len(rows.waiting(conn)) == 100
    begun = rows.start(conn, rows.waiting(conn)[0].id)
    assert begun is not None
    # Its settings are with it.
    assert (begun.arguments["query"], begun.tries) == ("SELECT 1", 0)
    assert len(rows.waiting(conn)) == 100


def test_many_requests_that_must_wait_for_a_refresh_let_those_after_them_begin(
    conn: Connection, database: str, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: the first hundred waited for one long refresh, and nobody was answered meanwhile."""
    install.install(conn)
    conn.execute(
        "ALTER TABLE millstream.requests DISABLE TRIGGER USER; "
        "INSERT INTO millstream.requests (kind, stream_table, search_path, requested_by) "
        "SELECT 'refresh', CASE WHEN n % 2 = 0 THEN 'a' ELSE 'a' || n END, '', current_user "
        "FROM generate_series(1, 130) AS n"
    )
    last = rows.send(conn, "validate", "", {"query": "SELECT 1"})
    monkeypatch.setattr(answer, "_look_up", lambda asked: asked)
    monkeypatch.setattr(answer, "_is_held_here", lambda asked: True)
    monkeypatch.setitem(answer._VERBS, "validate", lambda asked: {})

    def busy(asked: answer._OpenedRequest) -> rows.Document:
        raise Busy.working_on("a", "process 1 of this very service")

    monkeypatch.setitem(answer._VERBS, "refresh", busy)
    at_work = RequestDesk(lambda: App(database, Settings()), lambda: None)
    at_work.open()

    def is_answered() -> bool:
        at_work.look(conn)
        clock.now += 20.0
        return rows.look(conn, last).status == "DONE"

    try:
        wait_until(is_answered)
    finally:
        at_work.workers.close()
