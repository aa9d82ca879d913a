"""The verb refresh: a refresh that was cancelled has not failed, and trouble that passes suspends nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from millstream.client import Millstream
from millstream.errors import Cancelled
from millstream.testing import oracle

pytestmark = pytest.mark.spark

QUERY = "SELECT id, slow(v) AS v FROM t"
# Slow only while the table `slowness` has a row; an immutable function by its own word.
SLOW = """
CREATE TABLE t (id int PRIMARY KEY, v int);
INSERT INTO t VALUES (1, 1);
CREATE TABLE slowness (seconds float8);
CREATE FUNCTION slow(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN PERFORM pg_sleep(seconds) FROM public.slowness; RETURN v; END $$;
"""


@pytest.fixture
def writer(ms: Millstream, database: str) -> psycopg.Connection:
    conn = psycopg.connect(database, autocommit=True)
    conn.execute(SLOW)
    ms.create_stream_table("st", QUERY, schedule="continuous")
    conn.execute("INSERT INTO slowness VALUES (60); INSERT INTO t VALUES (2, 2)")
    return conn


@contextmanager
def while_it_sleeps(database: str, act: Callable[[psycopg.Connection, int], object]) -> Iterator[None]:
    """Do something as soon as a session of ours sleeps in the server."""
    asleep = (
        "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND application_name = 'millstream'"
        " AND datname = current_database()"
    )

    def wait() -> None:
        with psycopg.connect(database, autocommit=True) as conn:
            deadline = time.monotonic() + 30
            while not (found := conn.execute(asleep).fetchone()) and time.monotonic() < deadline:
                time.sleep(0.05)
            act(conn, found[0] if found else 0)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def cancel(conn: psycopg.Connection, pid: int) -> None:
    conn.execute("SELECT pg_cancel_backend(%s)", (pid,))


def interrupt(_conn: psycopg.Connection, _pid: int) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def succeeds(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("DELETE FROM slowness")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, "SELECT id, v FROM t", "public.st")


def test_a_refresh_that_an_administrator_cancels_is_cancelled_and_not_failed(
    ms: Millstream, writer: psycopg.Connection, database: str
) -> None:
    """It counted as an error of the stream table: three of them suspended it."""
    for _ in range(ms.app.settings.max_consecutive_errors + 1):
        with while_it_sleeps(database, cancel):
            assert ms.tick() == []
    with while_it_sleeps(database, cancel), pytest.raises(Cancelled, match='refresh of "st" was cancelled'):
        ms.refresh("st")
    assert {(entry.status, entry.reason) for entry in ms.history("st")[:5]} == {("CANCELLED", "MS407")}
    (told,) = ms.status()
    assert (told.status, told.consecutive_errors, told.transient_errors) == ("ACTIVE", 0, 0)
    assert [check.ok for check in ms.health() if check.name == "stream table public.st"] == [True]
    succeeds(ms, writer)


def test_a_refresh_that_ctrl_c_interrupts_is_cancelled_and_the_next_one_works(
    ms: Millstream, writer: psycopg.Connection, database: str
) -> None:
    # Spark's handler would cancel the jobs of other tests, too.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for act in (ms.tick, lambda: ms.refresh("st")):
            with pytest.raises(KeyboardInterrupt), while_it_sleeps(database, interrupt):
                act()
    finally:
        signal.signal(signal.SIGINT, former)
    cancelled = [entry for entry in ms.history("st") if entry.status == "CANCELLED"]
    assert [entry.initiated_by for entry in cancelled] == ["MANUAL", "SCHEDULER"]
    assert ms.status()[0].consecutive_errors == 0
    succeeds(ms, writer)
