"""What ends a sleep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
        wake_ups.wake("again")
    assert wake_ups.sleep(LONG) == {"again"}


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
