"""TRUNCATE keeps no old rows for old snapshots, so it must not come between a cut and what the cut
reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from psycopg import errors

from millstream.client import Millstream
from millstream.errors import LockNotHad
from millstream.postgres.connection import Connection
from millstream.refresh import cut, evaluate, source_locks
from millstream.testing.writers import VIEWS

if TYPE_CHECKING:
    from tests.concurrency.conftest import Judge

Another = Callable[[], Connection]


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def waits(observer: Connection, session: Connection) -> bool:
    """Does the session wait for a lock?"""
    query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    return bool(observer.execute(query, (session.info.backend_pid,)).fetchall()[0][0])


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do it in a thread, and wait for its end."""
    thread = Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.spark
def test_a_truncate_after_the_cut_waits_until_the_refresh_is_over(
    ms: Millstream,
    judge: Judge,
    conn: Connection,
    another: Another,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ms.create_stream_table("visited", VIEWS["visited"])
    conn.execute("INSERT INTO visits VALUES ('page 1', 1)")
    truncating, outcomes = another(), list[type[Exception]]()
    truncating.execute("SET lock_timeout = '300ms'")

    def truncate(point: str) -> None:
        try:
            truncating.execute("TRUNCATE visits")
        except errors.LockNotAvailable as error:
            outcomes.append(type(error))

    monkeypatch.setattr(cut, "failpoint", truncate)
    ms.refresh("visited")
    # The second is after the commit: nothing keeps it out any more.
    assert outcomes == [errors.LockNotAvailable]
    monkeypatch.undo()
    assert ms.refresh("visited").reason == "SOURCE_TRUNCATED"
    assert not judge.wrong


@pytest.mark.spark
def test_a_refresh_that_waited_for_a_truncate_sees_it(
    ms: Millstream, judge: Judge, conn: Connection, another: Another
) -> None:
    ms.create_stream_table("visited", VIEWS["visited"])
    # psycopg prepares what it runs often, and deallocates it after a rollback: that must not take
    # the snapshot.
    for _ in range(7):
        conn.execute("INSERT INTO visits VALUES ('page 1', 1)")
        ms.refresh("visited")
    truncating = another()
    truncating.execute("BEGIN")
    truncating.execute("TRUNCATE visits")

    def commit() -> None:
        wait_until(lambda: waits(conn, ms.app.conn))
        time.sleep(0.8)
        truncating.execute("COMMIT")

    with meanwhile(commit):
        assert ms.refresh("visited").reason == "SOURCE_TRUNCATED"
    assert not judge.wrong


@pytest.mark.spark
def test_a_source_that_stays_locked_holds_up_its_own_readers_only(
    ms: Millstream,
    judge: Judge,
    conn: Connection,
    another: Another,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_locks, "LOCK_TIMEOUT", "50ms")
    for name, query in VIEWS.items():
        ms.create_stream_table(name, query)
    conn.execute("INSERT INTO visits VALUES ('page 1', 1)")
    truncating = another()
    truncating.execute("BEGIN")
    truncating.execute("TRUNCATE orders")
    with pytest.raises(LockNotHad, match="orders"):
        ms.refresh_all()
    assert [entry.action for entry in ms.history("visited")] == ["DIFFERENTIAL", "FULL"]
    assert [entry.action for entry in ms.history("totals")] == ["SKIP", "FULL"]
    truncating.execute("COMMIT")
    ms.refresh_all()
    assert not judge.wrong


@pytest.mark.spark
@pytest.mark.timeout(120)
def test_a_truncate_that_waits_does_not_hang_the_scan_it_waits_for(
    ms: Millstream, conn: Connection, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan's own sessions queue behind the TRUNCATE, which waits for the cut, which waits for
    the scan.
    """
    conn.execute(
        "CREATE TABLE wide AS SELECT n, repeat('x', 500) AS padding FROM generate_series(1, 20000) AS n"
    )
    ms.create_stream_table("counted", "SELECT count(*) AS n, sum(n) AS total FROM wide")
    truncating, threads = another(), list[Thread]()

    def truncate(point: str) -> None:
        if point == "demand_read" and not threads:
            threads.append(Thread(target=truncating.execute, args=("TRUNCATE wide",), daemon=True))
            threads[0].start()
            wait_until(lambda: waits(conn, truncating))

    monkeypatch.setattr(evaluate, "failpoint", truncate)
    ms.refresh("counted", full=True)
    threads[0].join(10)
    assert not threads[0].is_alive()
    ms.refresh("counted")
    assert conn.execute("SELECT n, total FROM counted").fetchall() == [(0, None)]
