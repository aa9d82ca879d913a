"""What the catalog tells of the reader of WAL: how far it is, what has come back, and why it was
interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.rows import dict_row
from tests.capture.wal.conftest import BRISK

from millstream.postgres.connection import Connection
from millstream.testing.waiting import wait_until

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log

SENDERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'millstream log%'"


def health(conn: Connection) -> dict[str, Any]:
    with conn.cursor(row_factory=dict_row) as cursor:
        [row] = cursor.execute("SELECT * FROM millstream.slot_health()").fetchall()
    return row


def test_positions_markers_and_heartbeats_are_in_the_catalog(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int); CREATE TABLE other (id int)")
    t = log.capture("t")
    before = health(conn)
    assert (before["decoder_status"], before["heartbeat_at"], before["markers"]) == (
        "STOPPED",
        None,
        0,
    )
    log.start(replace(BRISK, heartbeat_interval=1.0))
    conn.execute("INSERT INTO t VALUES (1)")
    log.check(t)

    def has_all() -> dict[str, Any]:
        # WAL of a table that is no source comes as markers only.
        conn.execute("INSERT INTO other VALUES (1)")
        now = health(conn)
        return now if now["heartbeat_at"] and now["markers"] else {}

    now = wait_until(has_all)
    assert now["decoder_status"] == "STREAMING"
    assert now["trouble"] is None
    query = "SELECT %s::pg_lsn >= %s AND %s::pg_lsn > %s AND %s::pg_lsn > %s AND %s >= 0"
    lsns = [now[name] for name in ("received_lsn", "durable_lsn")]
    given = [*lsns, lsns[1], before["durable_lsn"], now["confirmed_lsn"], before["confirmed_lsn"]]
    assert conn.execute(query, [*given, now["confirmed_lag_seconds"]]).fetchall() == [(True,)]
    log.stop()
    assert wait_until(lambda: health(conn)["decoder_status"] == "STOPPED")


def interrupted(conn: Connection, times: int) -> dict[str, Any]:
    """The health after so many interruptions; nothing before."""
    now = health(conn)
    return now if now["reconnects"] >= times else {}


def test_interruptions_are_counted_with_their_reason(
    conn: Connection, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "millstream")
    conn.execute("CREATE TABLE t (id int)")
    t = log.capture("t")
    pipeline = log.start()
    for count in (1, 2):
        log.check(t)
        conn.execute(SENDERS)
        now = wait_until(partial(interrupted, conn, count))
        assert now["reconnects"] == pipeline.health.reconnects
        assert now["interrupted_by"] == pipeline.health.reason != ""
        assert now["interrupted_at"] is not None
    conn.execute("INSERT INTO t VALUES (1)")
    log.check(t)
    events = [(one.getMessage(), getattr(one, "fields", {})) for one in caplog.records]
    told = [fields for event, fields in events if event == "WAL capture is interrupted"]
    assert [fields["reconnects"] for fields in told] == list(range(1, len(told) + 1))
    assert told[-1]["reason"] == now["interrupted_by"]
    assert all({"received", "durable", "markers"} <= fields.keys() for fields in told)
    assert len([event for event, _ in events if event == "WAL is read"]) > len(told) - 1


def test_a_lagging_slot_is_reported_with_bytes_seconds_and_the_settings(
    conn: Connection, log: Log, another: Callable[[], Connection]
) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = log.capture("t")
    log.start()
    log.check(t)
    query = "SELECT source::text, slot_lag_warning, slot_lag_critical, alert FROM millstream.check_cdc_health()"
    assert conn.execute(query).fetchall() == [("t", 100 << 20, 1024 << 20, None)]
    conn.execute(
        "INSERT INTO millstream.settings VALUES ('slot_lag_warning', '1B'), ('slot_lag_critical', '2kB')"
    )
    holder = another()
    holder.execute(f"BEGIN; LOCK TABLE millstream_changes.changes_{t.source.relid}".encode())
    conn.execute("INSERT INTO t SELECT generate_series(1, 1000)")

    def lag() -> tuple[str, int, float] | None:
        query = "SELECT alert, slot_lag_bytes, slot_lag_seconds FROM millstream.check_cdc_health()"
        [(alert, size, seconds)] = conn.execute(query).fetchall()
        return (alert, size, seconds) if alert and seconds else None

    told = wait_until(lag)
    assert told is not None
    assert (told[0].startswith("The slot lags "), told[1] > 2048) == (True, True)
    assert told[0].endswith("more than slot_lag_critical (2048 bytes).")
    holder.execute("COMMIT")
    log.check(t)


def test_an_idle_reader_writes_nothing(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = log.capture("t")
    # Only what is far ahead is stored, and nothing is.
    pipeline = log.start(
        replace(BRISK, idle_bytes=1 << 30, idle_at_most=3600.0, heartbeat_interval=3600.0)
    )
    conn.execute("INSERT INTO t VALUES (1)")
    log.check(t)
    query = "SELECT xmin::text FROM millstream.slots"
    written = conn.execute(query).fetchall()
    received = pipeline.health.received

    def has_come() -> bool:
        conn.execute("SELECT pg_current_xact_id(); CHECKPOINT")
        return pipeline.health.received > received

    wait_until(has_come)
    assert conn.execute(query).fetchall() == written
