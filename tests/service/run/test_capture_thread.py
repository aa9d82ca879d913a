"""The thread that reads WAL: what it does when the replication slot is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from millstream.catalog import sources
from millstream.client import Millstream
from millstream.postgres.connection import Connection
from millstream.service.app import App
from millstream.service.run.capture_thread import CaptureThread
from millstream.settings import Settings
from millstream.testing import oracle
from millstream.testing.waiting import wait_until

pytestmark = pytest.mark.spark

TOTALS = "SELECT region, sum(amount) AS total FROM orders GROUP BY region"


@contextmanager
def capturing(dsn: str) -> Iterator[None]:
    thread = CaptureThread(lambda: App(dsn, Settings()), lambda: None)
    thread.start()
    try:
        yield
    finally:
        thread.stop(60)


def mode(conn: Connection) -> str:
    [source] = sources.every(conn)
    return source.mode


def drop_slot(conn: Connection) -> bool:
    ours = "FROM pg_replication_slots WHERE database = current_database()"
    conn.execute(f"SELECT pg_terminate_backend(active_pid) {ours} AND active".encode())
    try:
        return bool(
            conn.execute(f"SELECT pg_drop_replication_slot(slot_name) {ours}".encode()).fetchall()
        )
    except psycopg.errors.ObjectInUse:
        return False


@pytest.mark.parametrize("while_reading", [True, False])
def test_after_the_slot_was_lost_triggers_capture_again_and_the_reader_reinitialises(
    ms: Millstream, conn: Connection, database: str, while_reading: bool
) -> None:
    conn.execute("CREATE TABLE orders (id int PRIMARY KEY, region text, amount numeric)")
    conn.execute(
        "ALTER TABLE orders REPLICA IDENTITY FULL; INSERT INTO orders VALUES (1, 'n', 1), (2, 's', 2)"
    )
    ms.create_stream_table("totals", TOTALS, schedule="manual")
    with capturing(database):
        wait_until(lambda: mode(conn) == "WAL")
        if while_reading:
            wait_until(lambda: drop_slot(conn))
            wait_until(lambda: mode(conn) == "TRIGGER")
    if not while_reading:
        wait_until(lambda: drop_slot(conn))
        # Nobody captures this.
        conn.execute("UPDATE orders SET amount = 20 WHERE id = 2")
        with capturing(database):
            wait_until(lambda: mode(conn) == "TRIGGER")
    conn.execute("INSERT INTO orders VALUES (3, 'n', 3)")
    report = ms.refresh("totals")
    assert (report.action, report.reason) == ("REINITIALIZE", "LOG_LOST")
    oracle.check(ms.app.conn, TOTALS, "totals")
    conn.execute("DELETE FROM orders WHERE id = 1")
    assert ms.refresh("totals").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, TOTALS, "totals")
