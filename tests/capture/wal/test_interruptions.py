"""Whatever breaks on the way, the log is taken up where it is durable: nothing is lost, nothing
comes twice.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from millstream.bundled.server import Server, embedded
from millstream.capture.wal import slot
from millstream.capture.wal.pipeline import Options, Pipeline
from millstream.catalog import slots
from millstream.errors import SlotLost, WalTakenOver
from millstream.postgres import relations
from millstream.postgres.connection import Connection, connect
from millstream.testing.proxy import proxy

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log, Logged

BRISK = Options(
    status_interval=0.3, idle_bytes=1, idle_seconds=0.2, pause=0.05, longest_pause=0.3, patience=2.0
)

_SENDERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'millstream log%'"
_STORES = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'millstream store'"
)


class Writing:
    """Somebody who writes, a row at a time, until told to stop; and bears with a server that goes
    away.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            try:
                with connect(self.dsn) as conn:
                    while not self._ended.wait(0.002):
                        number += 1
                        conn.execute("INSERT INTO t VALUES (%s, repeat('x', 50))", (number,))
                        conn.execute("UPDATE t SET v = 'y' WHERE id = %s", (number - 5,))
            except Exception:
                self._ended.wait(0.05)


@pytest.fixture
def t(conn: Connection, log: Log) -> Logged:
    conn.execute("CREATE TABLE t (id int, v text); CREATE INDEX ON t (id)")
    return log.capture("t")


@pytest.mark.parametrize("victims", [_SENDERS, _STORES], ids=["senders", "stores"])
def test_sessions_that_are_terminated_again_and_again(
    conn: Connection, log: Log, t: Logged, database: str, victims: str
) -> None:
    pipeline = log.start(BRISK)
    with Writing(database):
        for _ in range(8):
            time.sleep(0.25)
            conn.execute(victims.encode())
    log.check(t)
    assert pipeline.health.reconnects >= 4
    assert pipeline.health.reason
    assert len(t.content) > 100


def test_a_connection_that_falls_silent_is_given_up(
    log: Log, t: Logged, database: str, server: Server
) -> None:
    with proxy(server.socket) as between:
        dsn = make_conninfo(database, host="127.0.0.1", port=between.port)
        pipeline = log.start(replace(BRISK, silence=1.0, patience=0.5), dsn)
        with Writing(database):
            log.settle()
            for _ in range(2):
                between.fall_silent()
                before = pipeline.health.reconnects
                time.sleep(0.3)
                between.wake()
                deadline = time.monotonic() + 15
                while pipeline.health.reconnects == before:
                    assert time.monotonic() < deadline, "nobody noticed"
                    time.sleep(0.05)
                log.settle()
        log.check(t)
        assert "Nothing has come" in pipeline.health.reason
        log.stop()


# -- the server ------------------------------------------------------------------------------


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that may be killed."""
    with embedded(bindir=os.environ.get("MILLSTREAM_TEST_BINDIR") or None) as running:
        yield running


@pytest.mark.parametrize("how", ["killed", "halted"])
def test_a_server_that_goes_and_comes_back(
    own_server: Server, make_log: Callable[[str], Log], how: str
) -> None:
    log = make_log(own_server.dsn)
    log.conn.execute("CREATE TABLE t (id int, v text); CREATE INDEX ON t (id)")
    t = log.capture("t")
    log.start(BRISK)
    with Writing(own_server.dsn):
        for _ in range(3):
            time.sleep(1.0)
            own_server.kill() if how == "killed" else own_server.halt()
            time.sleep(0.3)
            own_server.start()
    log.conn = connect(own_server.dsn)
    t.reader = connect(own_server.dsn)
    log.check(t)
    assert len(t.content) > 100
    log.stop()
    log.wait_until_free()


def test_a_server_that_stands_still_for_a_while(
    own_server: Server, make_log: Callable[[str], Log]
) -> None:
    """MILLSTREAM_TEST_STILL says for how many seconds."""
    log = make_log(own_server.dsn)
    log.conn.execute("CREATE TABLE t (id int, v text); CREATE INDEX ON t (id)")
    t = log.capture("t")
    log.start(replace(BRISK, silence=3.0))
    with Writing(own_server.dsn):
        time.sleep(1.0)
        with own_server.standing_still():
            time.sleep(float(os.environ.get("MILLSTREAM_TEST_STILL", "5")))
        time.sleep(1.0)
    log.check(t)
    assert len(t.content) > 50
    log.stop()
    log.wait_until_free()


# -- is it still the same? -------------------------------------------------------------------


def _lost(log: Log) -> SlotLost:
    """The error that a pipeline ends by."""
    pipeline = log.start(BRISK)
    with pytest.raises(SlotLost) as caught:
        pipeline.wait(1 << 62, 20)
    log.pipeline = None
    return caught.value


def test_a_slot_that_was_dropped_is_not_replaced_in_silence(
    conn: Connection, log: Log, t: Logged
) -> None:
    conn.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"
    )
    assert "dropped" in _lost(log).detail


def test_a_slot_created_again_under_the_same_name_is_detected(
    conn: Connection, log: Log, t: Logged
) -> None:
    name = slot.name_of(conn)
    conn.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    conn.execute("INSERT INTO t VALUES (1, 'lost')")
    conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    assert "has stored changes only up to" in _lost(log).detail


def test_a_slot_that_somebody_advanced_is_noticed(conn: Connection, log: Log, t: Logged) -> None:
    conn.execute("INSERT INTO t VALUES (1, 'lost')")
    conn.execute(
        "SELECT pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())", (slot.name_of(conn),)
    )
    assert "has stored changes only up to" in _lost(log).detail


def test_a_slot_whose_wal_was_removed_is_detected(
    own_server: Server, make_log: Callable[[str], Log]
) -> None:
    log = make_log(own_server.dsn)
    log.conn.execute("CREATE TABLE t (id int, v text)")
    log.capture("t")
    log.conn.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    log.conn.execute("SELECT pg_reload_conf()")
    for _ in range(5):
        log.conn.execute("INSERT INTO t VALUES (1, 'lost')")
        log.conn.execute("SELECT pg_switch_wal()")
        log.conn.execute("CHECKPOINT")
    assert "invalidated" in _lost(log).detail


def test_a_slot_of_another_plugin_is_noticed(conn: Connection, log: Log, t: Logged) -> None:
    name = slot.name_of(conn)
    conn.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    conn.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", (name,))
    assert "Another slot" in _lost(log).detail


def test_a_publication_created_again_is_detected(conn: Connection, log: Log, t: Logged) -> None:
    name = slot.name_of(conn)
    conn.execute(f"DROP PUBLICATION {name}".encode())
    conn.execute(f"CREATE PUBLICATION {name} FOR TABLE t".encode())
    assert "created again" in _lost(log).detail
    conn.execute(f"DROP PUBLICATION {name}".encode())
    assert "does not exist" in _lost(log).detail


def test_another_server_or_a_server_set_back_is_noticed(
    conn: Connection, log: Log, t: Logged
) -> None:
    conn.execute("UPDATE millstream.slots SET timeline = timeline + 1")
    assert "restored, promoted or replaced" in _lost(log).detail
    conn.execute("UPDATE millstream.slots SET timeline = timeline - 1, cursor = 'FFFF/0'")
    assert "reset to an earlier state" in _lost(log).detail


def test_a_slot_is_made_once_and_one_that_was_not_recorded_is_made_again(
    conn: Connection, log: Log, t: Logged
) -> None:
    with pytest.raises(ValueError, match="already exists"):
        slot.create(conn, log.dsn)
    conn.execute("DELETE FROM millstream.slots")
    conn.execute("INSERT INTO t VALUES (1, 'before')")
    log.slot = slot.create(conn, log.dsn)
    t.frontier, t.content = t.cut()
    conn.execute("INSERT INTO t VALUES (2, 'after')")
    log.start(BRISK)
    assert log.check(t)[0].images == 1


def test_publishing_again_adds_what_is_lacking(conn: Connection, log: Log, t: Logged) -> None:
    conn.execute("CREATE TABLE u (id int)")
    names = relations.names(
        conn, [t.source.relid, conn.execute("SELECT 'u'::regclass::oid").fetchall()[0][0]]
    )
    slot.publish(conn, names)
    slot.publish(conn, names)
    listed = conn.execute("SELECT tablename FROM pg_publication_tables ORDER BY 1").fetchall()
    assert listed == [("t",), ("u",)]


def test_a_slot_that_is_taken_away_leaves_nothing(conn: Connection, log: Log, t: Logged) -> None:
    name = slot.name_of(conn)
    slot.drop(conn, name)
    assert slots.get(conn, name) is None
    assert (
        conn.execute(
            "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        ).fetchall()
        == []
    )
    assert conn.execute("SELECT 1 FROM pg_publication").fetchall() == []


# -- only one --------------------------------------------------------------------------------


def test_a_second_process_takes_over_and_the_first_can_store_nothing_more(
    conn: Connection, another: Callable[[], Connection], log: Log, t: Logged, database: str
) -> None:
    first = log.start(BRISK)
    holder = another()
    holder.execute(f"BEGIN; LOCK TABLE millstream_changes.changes_{t.source.relid}".encode())
    conn.execute("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) AS g")
    time.sleep(0.5)
    second = Pipeline(database, first.slot, BRISK)
    second.start()
    time.sleep(0.5)
    holder.execute("COMMIT")
    with pytest.raises(WalTakenOver):
        first.wait(1 << 62, 20)
    log.pipeline = second
    log.check(t)
    assert len(t.content) == 100
