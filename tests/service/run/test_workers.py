"""Threads that work. The applications are doubles: what they work on is not looked at here."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, current_thread
from typing import Any

import pytest

from millstream.errors import Busy
from millstream.service.run.workers import Finished, Task, Workers
from millstream.testing.waiting import wait_until


class App:
    """Counts; ends its work when it is hung up."""

    def __init__(self) -> None:
        self.is_closed = False
        self.hung_up = Event()

    def hang_up(self) -> None:
        self.hung_up.set()

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def opened() -> list[App]:
    return []


@pytest.fixture
def workers(opened: list[App]) -> Iterator[Workers]:
    def open_app() -> Any:
        opened.append(App())
        return opened[-1]

    made = Workers("worker", open_app, lambda: None)
    made.limit = 2
    yield made
    made.close()


def finished(workers: Workers) -> list[Finished]:
    return wait_until(workers.finished)


def test_a_worker_is_opened_when_needed_and_the_last_one_is_taken_again(
    workers: Workers, opened: list[App]
) -> None:
    names = list[str]()
    for _ in range(3):
        workers.submit(Task("one", lambda app: names.append(current_thread().name)))
        finished(workers)
    assert names == ["worker 1"] * 3
    assert len(opened) == 1


def test_as_many_at_once_as_the_limit_says(workers: Workers) -> None:
    go = Event()

    def act(_app: Any) -> None:
        go.wait(90)

    workers.submit(Task("one", act, [1]))
    assert workers.free == 1
    workers.submit(Task("two", act, [2]))
    assert workers.free == 0
    assert [task.name for task in workers.running] == ["one", "two"]
    workers.limit = 1
    assert workers.free == 0
    go.set()
    assert workers.wait(90)


def test_an_error_is_reported_and_the_worker_works_on(workers: Workers) -> None:
    def fail(_app: Any) -> None:
        raise Busy.working_on("totals", None)

    def break_down(_app: Any) -> None:
        raise ZeroDivisionError

    for act, kind in (
        (fail, Busy),
        (break_down, ZeroDivisionError),
        (lambda app: None, type(None)),
    ):
        workers.submit(Task("one", act))
        assert isinstance(finished(workers)[0].error, kind)


def test_what_takes_too_long_is_hung_up(workers: Workers, opened: list[App]) -> None:
    def act(_app: Any) -> None:
        opened[0].hung_up.wait(90)

    workers.submit(Task("one", act))
    assert not workers.wait(0.0)
    wait_until(lambda: opened)
    workers.hang_up()
    assert workers.wait(90)
    workers.close()
    assert wait_until(lambda: opened[0].is_closed)
