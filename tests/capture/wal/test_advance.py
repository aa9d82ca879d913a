"""The slot advances with what is durable: by rows, by keepalives alone, and never past what is on
its way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg

from millstream.capture.wal.heartbeat import flushed
from millstream.capture.wal.pipeline import Options
from millstream.postgres.connection import Connection
from millstream.testing.waiting import wait_until

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log

# As a service has it, but for the intervals.
REAL = Options(
    status_interval=0.5,
    idle_seconds=0.5,
    idle_at_most=2.0,
    heartbeat_interval=0.5,
    heartbeat_timeout=5.0,
)
# Some 5 MB each: MILLSTREAM_TEST_LOG_FLOODS=200 is a gigabyte.
FLOODS = int(os.environ.get("MILLSTREAM_TEST_LOG_FLOODS", "5"))
FLOOD = "INSERT INTO foreign_rows SELECT g, repeat('x', 200) FROM generate_series(1, 20000) AS g"


def _end(conn: Connection) -> int:
    found: int = conn.execute("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8").fetchall()[0][0]
    return found


def _until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_the_slot_advances_past_wal_without_published_changes(conn: Connection, log: Log) -> None:
    """Seed 3, tests 1, 2 and 3: an idle publication in a busy database, with rows after it."""
    conn.execute("CREATE TABLE t (id int); CREATE TABLE foreign_rows (id int, v text)")
    t = log.capture("t")
    pipeline = log.start(REAL)
    for _ in range(FLOODS):
        conn.execute(FLOOD)
    flooded = _end(conn)
    _until(lambda: log.confirmed() >= flooded, "the slot did not follow", 10.0)
    assert pipeline.health.reconnects == 0
    conn.execute("INSERT INTO t SELECT generate_series(1, 100)")
    assert log.check(t)[0].images == 100
    assert pipeline.health.reconnects == 0, pipeline.health.reason


def test_the_slot_advances_past_the_wal_of_another_database(
    conn: Connection, log: Log, database: str
) -> None:
    conn.execute("CREATE TABLE t (id int)")
    log.capture("t")
    log.start(REAL)
    other = database.rsplit("/", 1)[0] + "/postgres"
    with psycopg.connect(other, autocommit=True) as elsewhere:
        elsewhere.execute("CREATE TABLE foreign_rows (id int, v text)")
        elsewhere.execute(FLOOD)
        elsewhere.execute("DROP TABLE foreign_rows")
    flooded = _end(conn)
    _until(lambda: log.confirmed() >= flooded, "the slot did not follow", 10.0)


def test_without_sources_the_slot_follows_too(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int); CREATE TABLE foreign_rows (id int, v text)")
    log.capture("t")
    conn.execute("DELETE FROM millstream.sources")
    log.start(REAL)
    conn.execute(FLOOD)
    flooded = _end(conn)
    _until(lambda: log.confirmed() >= flooded, "the slot did not follow", 10.0)


def test_what_is_not_durable_is_not_let_go(
    conn: Connection, another: Callable[[], Connection], log: Log
) -> None:
    """Seed 3, tests 4 and 5: the store is held up while keepalives come; the sender hears from us
    all the same.
    """
    conn.execute("CREATE TABLE t (id int); CREATE TABLE foreign_rows (id int, v text)")
    t = log.capture("t")
    pipeline = log.start(REAL)
    conn.execute("INSERT INTO t VALUES (0)")
    log.check(t)
    holder = another()
    holder.execute(f"BEGIN; LOCK TABLE millstream_changes.changes_{t.source.relid}".encode())
    before = _end(conn)
    conn.execute("INSERT INTO t SELECT generate_series(1, 10)")
    for _ in range(3):
        conn.execute(FLOOD)
        time.sleep(0.5)
    _until(lambda: pipeline.health.received > _end(conn) - (1 << 20), "keepalives did not come")
    assert log.confirmed() <= before + 1000, "let go of rows that are not stored"
    assert log.cursor() <= before + 1000
    holder.execute("COMMIT")
    flooded = _end(conn)
    assert log.check(t)[0].images == 10
    _until(lambda: log.confirmed() >= flooded, "the slot did not follow")
    assert pipeline.health.reconnects == 0, pipeline.health.reason


def test_an_acknowledged_position_is_recorded_first_and_never_moves_back(
    conn: Connection, log: Log
) -> None:
    """Seed 3, test 6."""
    conn.execute("CREATE TABLE t (id int); CREATE TABLE foreign_rows (id int, v text)")
    t = log.capture("t")
    pipeline = log.start(REAL)
    last = 0
    for number in range(30):
        conn.execute(FLOOD if number % 10 == 0 else "INSERT INTO t VALUES (1)")
        confirmed = log.confirmed()
        assert last <= confirmed <= log.cursor()
        last = confirmed
        time.sleep(0.05)
    log.check(t)
    assert pipeline.health.reconnects == 0


def test_an_idle_server_is_left_idle(conn: Connection, log: Log) -> None:
    """The server has other work in this test too; what is told is that a marker alone is not worth
    a transaction.
    """
    conn.execute("CREATE TABLE t (id int); CREATE TABLE foreign_rows (id int, v text)")
    log.capture("t")
    pipeline = log.start(
        replace(REAL, heartbeat_interval=60.0, idle_at_most=60.0, idle_bytes=1 << 40)
    )
    log.settle()
    stored = conn.execute("SELECT updated_at, cursor FROM millstream.slots").fetchall()
    conn.execute(FLOOD)
    _until(lambda: pipeline.health.received >= _end(conn) - 1000, "keepalives did not come")
    time.sleep(2.0)
    assert conn.execute("SELECT updated_at, cursor FROM millstream.slots").fetchall() == stored


def test_a_position_that_is_waited_for_is_stored_by_an_idle_reader_and_only_once(
    conn: Connection, log: Log
) -> None:
    conn.execute("CREATE TABLE t (id int); CREATE TABLE foreign_rows (id int, v text)")
    log.capture("t")
    pipeline = log.start(
        replace(REAL, heartbeat_interval=3600.0, idle_at_most=3600.0, idle_bytes=1 << 40)
    )
    log.settle()
    stored = pipeline.health.markers
    conn.execute("INSERT INTO foreign_rows VALUES (1, 'x')")
    position = flushed(conn)
    assert log.cursor() < position
    pipeline.store_position(position)
    wait_until(lambda: log.cursor() >= position)
    # What is stored by itself comes after this, if it comes.
    conn.execute("INSERT INTO foreign_rows VALUES (2, 'x')")
    wait_until(lambda: pipeline.health.received >= flushed(conn) - 1000)
    assert pipeline.health.markers == stored + 1


def test_a_sender_that_wants_to_hear_from_us_does_while_the_store_is_held_up(
    conn: Connection, another: Callable[[], Connection], log: Log
) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = log.capture("t")
    pipeline = log.start(replace(REAL, budget=1 << 16))
    holder = another()
    holder.execute(f"BEGIN; LOCK TABLE millstream_changes.changes_{t.source.relid}".encode())
    for _ in range(10):
        conn.execute("INSERT INTO t SELECT generate_series(1, 2000)")
    time.sleep(4.0)
    reply_at = (
        "SELECT extract(epoch FROM clock_timestamp() - reply_time)::float8 FROM pg_stat_replication"
    )
    assert (
        conn.execute(reply_at + " WHERE application_name LIKE 'millstream log%%'").fetchall()[0][0]
        < 2.0
    )
    holder.execute("COMMIT")
    assert log.check(t)[0].images == 20000
    assert pipeline.health.reconnects == 0


def _held(conn: Connection) -> tuple[int, int, str | None]:
    """How far the slot is behind in what it has confirmed and in what the server keeps for it, and
    who holds that.
    """
    query = "SELECT confirmed_lag_bytes, restart_lag_bytes, held_by FROM millstream.slot_health()"
    confirmed, restart, holder = conn.execute(query).fetchall()[0]
    return confirmed, restart, holder


def test_the_session_that_retains_wal_is_named(conn: Connection, log: Log, database: str) -> None:
    """A transaction that does not end has the server keep its log, though all of it is confirmed."""
    conn.execute("CREATE TABLE t (id int); CREATE TABLE foreign_rows (id int, v text)")
    log.capture("t")
    log.start(REAL)

    def flooded() -> tuple[int, int, str | None]:
        for _ in range(5):
            conn.execute(FLOOD)
        # The server looks at what is running, and may let go of the log.
        conn.execute("CHECKPOINT")
        end = _end(conn)
        _until(lambda: log.confirmed() >= end, "the slot did not follow", 10.0)
        return _held(conn)

    with psycopg.connect(database, application_name="a long one") as slow:
        slow.execute("INSERT INTO foreign_rows VALUES (0, 'x')")
        confirmed, restart, holder = flooded()
        assert restart > confirmed + 16_000_000
        assert holder is not None
        assert f"process {slow.info.backend_pid}, transaction" in holder
        assert "(a long one)" in holder
        slow.rollback()
        slow.execute("INSERT INTO foreign_rows VALUES (0, 'x')")
        slow.execute("PREPARE TRANSACTION 'forgotten'")
        try:
            holder = flooded()[2]
            assert holder is not None
            assert holder.startswith("prepared transaction 'forgotten'")
        finally:
            conn.execute("ROLLBACK PREPARED 'forgotten'")
    _until(lambda: flooded()[2] is None, "it is held still", 30.0)
