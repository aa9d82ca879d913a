"""What ends a sleep."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread

import psycopg
import pytest

from millstream.postgres.connection import Connection
from millstream.service.run.wake_ups import WakeUps

# Nothing sleeps for so long but what is broken.
LONG = 60.0


@pytest.fixture
def wake_ups() -> Iterator[WakeUps]:
    made = WakeUps()
    yield made
    made.close()


def test_a_word_of_another_thread_ends_a_sleep(wake_ups: WakeUps) -> None:
    other = Thread(target=wake_ups.wake, args=("stop",))
    other.start()
    assert wake_ups.sleep(LONG) == {"stop"}
    other.join()
    assert wake_ups.sleep(0.0) == set()


def test_words_that_came_before_are_not_lost(wake_ups: WakeUps) -> None:
    for word in ("settings", "stop", "settings"):
        wake_ups.wake(word)
    assert wake_ups.sleep(LONG) == {"settings", "stop"}


def test_a_full_pipe_still_wakes(wake_ups: WakeUps) -> None:
    for _ in range(100_000):
        wake_ups.wake("request")
    assert wake_ups.sleep(LONG) == {"request"}


def test_a_wake_up_without_a_message_returns_none(wake_ups: WakeUps) -> None:
    wake_ups.wake()
    # If it did not wake, the time limit of the test would end it.
    assert wake_ups.sleep(1e6) == set()


def test_after_it_is_closed_it_writes_to_no_other_file() -> None:
    wake_ups = WakeUps()
    wake_ups.close()
    # It has the numbers of the one that was closed.
    with pipe() as is_written:
        wake_ups.wake("stop")
        assert not is_written()


def test_closed_while_another_thread_wakes_it_writes_to_no_other_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wake_ups = WakeUps()
    write = os.write
    with ExitStack() as stack:
        others = list[Callable[[], bool]]()

        def write_late(descriptor: int, data: bytes) -> int:
            wake_ups.close()
            others.append(stack.enter_context(pipe()))
            return write(descriptor, data)

        monkeypatch.setattr(os, "write", write_late)
        wake_ups.wake("lost")
        assert [is_written() for is_written in others] == [False]


@contextmanager
def pipe() -> Iterator[Callable[[], bool]]:
    """Open a pipe; tell whether anything was written to it."""
    reading, writing = os.pipe()
    try:
        yield lambda: bool(select.select([reading], [], [], 0.0)[0])
    finally:
        os.close(reading)
        os.close(writing)


def test_a_notification_ends_a_sleep_also_one_that_came_with_a_statement(
    wake_ups: WakeUps, conn: Connection, another: Callable[[], Connection]
) -> None:
    wake_ups.listen(conn)
    other = another()
    other.execute("NOTIFY millstream_wake, 'request'")
    assert wake_ups.sleep(LONG, conn) == {"request"}
    other.execute("NOTIFY millstream_wake, 'settings'")
    conn.execute("SELECT 1")
    assert wake_ups.sleep(LONG, conn) == {"settings"}
    other.execute("NOTIFY elsewhere, 'nothing'")
    assert wake_ups.sleep(0.0, conn) == set()


def test_words_that_nobody_here_uses_are_forgotten(
    wake_ups: WakeUps, conn: Connection, another: Callable[[], Connection]
) -> None:
    wake_ups.listen(conn)
    other = another()
    for _ in range(2):
        other.execute(
            "SELECT pg_notify('millstream_wake', repeat('x', 1000) || n) FROM generate_series(1, 1000) AS n"
        )
        other.execute("NOTIFY millstream_wake, 'stop'")
        # It comes with the statement, or with the sleep.
        conn.execute("SELECT 1")
        assert wake_ups.sleep(0.5, conn) == set()
    other.execute("NOTIFY millstream_wake, 'ddl'")
    assert wake_ups.sleep(LONG, conn) == {"ddl"}


def test_a_lost_connection_ends_a_sleep_with_an_error(
    wake_ups: WakeUps, conn: Connection, another: Callable[[], Connection]
) -> None:
    wake_ups.listen(conn)
    another().execute("SELECT pg_terminate_backend(%s)", (conn.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        sleep_again_and_again(wake_ups, conn)


def sleep_again_and_again(wake_ups: WakeUps, conn: Connection) -> None:
    # The first may take in the server's last words, the second that it has hung up.
    began = time.monotonic()
    while time.monotonic() - began < LONG:
        wake_ups.sleep(LONG, conn)
