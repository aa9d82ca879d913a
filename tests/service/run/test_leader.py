"""The loop on a real database, in a thread; each refresh is compared with PostgreSQL's answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.service.run.conftest import serving, wait_for_leader

import millstream
from millstream import Millstream
from millstream.capture.wal import follower
from millstream.capture.wal.pipeline import Options
from millstream.postgres.connection import Connection
from millstream.service.run import upkeep
from millstream.service.run.wake_ups import WakeUps
from millstream.testing.waiting import wait_until

pytestmark = pytest.mark.spark

ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, region int NOT NULL, amount int NOT NULL);
INSERT INTO orders SELECT i, i % 5, i FROM generate_series(1, 100) AS i;
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO people VALUES (1, 'Ada'), (2, 'Grace');
"""
TOTALS = "SELECT region, sum(amount) AS total FROM orders GROUP BY region"
HIGHEST = "SELECT max(total) AS highest FROM totals"


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(ORDERS.encode())
        yield conn


Seen = Callable[[str, str], None]


@pytest.fixture
def seen(writer: psycopg.Connection) -> Seen:
    """Wait until a stream table shows what the query over the sources gives now."""

    def wait(name: str, query: str) -> None:
        difference = (
            f"((TABLE {name}) EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL (TABLE {name}))"
        )
        wait_until(lambda: not writer.execute(difference.encode()).fetchall())

    return wait


def test_it_keeps_a_chain_fresh_differentially_and_moves_what_does_not_change(
    database: str, spark: SparkSession, ms: Millstream, writer: psycopg.Connection, seen: Seen
) -> None:
    with serving(database, spark, scheduler_interval="50ms"):
        wait_for_leader(database)
        ms.create_stream_table("totals", TOTALS, schedule="200ms")
        ms.create_stream_table("highest", HIGHEST, schedule="200ms")
        ms.create_stream_table(
            "names", "SELECT id, name FROM people", schedule="200ms", initialize=False
        )
        seen("names", "SELECT id, name FROM people")
        for amount in (1000, 2000, 3000):
            writer.execute("UPDATE orders SET amount = %s WHERE id = 7", (amount,))
            seen("highest", f"SELECT max(total) FROM ({TOTALS}) AS t")
            seen("totals", TOTALS)
        done = [
            entry.action for entry in ms.history("highest") if entry.initiated_by == "SCHEDULER"
        ]
        assert done.count("DIFFERENTIAL") >= 3
        # Skipped: while it was created.
        assert set(done) <= {"DIFFERENTIAL", "SKIP"}
        # Of what does not change the timestamp follows too.
        moment = "SELECT data_timestamp FROM millstream.stream_tables WHERE name = 'names'"
        [(before,)] = writer.execute(moment).fetchall()
        wait_until(lambda: writer.execute(moment).fetchall()[0][0] > before)


def test_settings_are_read_while_it_works_and_off_means_off(
    database: str, spark: SparkSession, ms: Millstream, writer: psycopg.Connection, seen: Seen
) -> None:
    ms.create_stream_table("totals", TOTALS, schedule="200ms")
    ms.create_stream_table("names", "SELECT id, name FROM people", schedule="200ms")
    with serving(database, spark, scheduler_interval="50ms"):
        wait_for_leader(database)
        writer.execute("INSERT INTO orders VALUES (1000, 1, 1)")
        seen("totals", TOTALS)
        writer.execute("INSERT INTO millstream.settings (name, value) VALUES ('enabled', 'false')")
        # Some ticks, while which it may not have been read yet.
        cut_at = "SELECT max(cut_at) FROM millstream.stream_tables"
        still = list[object]()

        def has_stopped() -> bool:
            still.append(writer.execute(cut_at).fetchone())
            return len(still) > 40 and len(set(still[-40:])) == 1

        wait_until(has_stopped, pause=0.05)
        writer.execute("INSERT INTO people VALUES (3, 'Barbara')")
        writer.execute("DELETE FROM millstream.settings WHERE name = 'enabled'")
        seen("names", "SELECT id, name FROM people")


def test_what_is_due_is_looked_for_as_often_as_the_setting_says(
    database: str, spark: SparkSession, ms: Millstream, writer: psycopg.Connection, seen: Seen
) -> None:
    ms.create_stream_table("names", "SELECT id, name FROM people", schedule="manual")
    writer.execute(
        "INSERT INTO millstream.settings (name, value) VALUES ('scheduler_interval', '1h')"
    )

    def answer_requests() -> None:
        for _ in range(3):
            [(request,)] = writer.execute(
                "SELECT millstream.refresh_stream_table('names')"
            ).fetchall()
            writer.execute(f"CALL millstream.wait_for({request})".encode())

    with serving(database, spark, verify_budget=0):
        # Then it has looked for the first time, and will in an hour.
        answer_requests()
        ms.create_stream_table("totals", TOTALS, schedule="200ms")
        former = writer.execute("TABLE totals").fetchall()
        writer.execute("INSERT INTO orders VALUES (1000, 1, 1)")
        answer_requests()
        assert writer.execute("TABLE totals").fetchall() == former
        writer.execute("UPDATE millstream.settings SET value = '50ms'")
        seen("totals", TOTALS)


def test_a_refresh_that_takes_longer_than_the_shutdown_may_is_rolled_back(
    database: str, spark: SparkSession, ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("names", "SELECT id, name FROM people", schedule="200ms")
    writer.execute(
        "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$;"
        "CREATE TRIGGER dawdle AFTER INSERT ON names FOR EACH STATEMENT EXECUTE FUNCTION dawdle()"
    )
    sleeping = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
    with serving(database, spark, scheduler_interval="50ms", shutdown_timeout="100ms"):
        writer.execute("INSERT INTO people VALUES (3, 'Barbara')")
        wait_until(lambda: writer.execute(sleeping).fetchall())
    wait_until(lambda: not writer.execute(sleeping).fetchall())
    assert writer.execute("SELECT count(*) FROM names").fetchone() == (2,)


def test_a_setting_that_changes_while_the_service_starts_is_heeded(
    database: str,
    spark: SparkSession,
    ms: Millstream,
    writer: psycopg.Connection,
    seen: Seen,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had read the settings, did not listen yet, and never heard of the change."""
    ms.create_stream_table("totals", TOTALS, schedule="200ms")
    writer.execute("INSERT INTO millstream.settings (name, value) VALUES ('enabled', 'false')")
    writer.execute("INSERT INTO orders VALUES (1000, 1, 1)")
    listen = WakeUps.listen

    def change_first(wake_ups: WakeUps, conn: Connection) -> None:
        writer.execute("DELETE FROM millstream.settings")
        listen(wake_ups, conn)

    monkeypatch.setattr(WakeUps, "listen", change_first)
    with serving(database, spark, scheduler_interval="50ms"):
        seen("totals", TOTALS)


def test_it_survives_the_loss_of_all_its_sessions(
    database: str, spark: SparkSession, ms: Millstream, writer: psycopg.Connection, seen: Seen
) -> None:
    ms.create_stream_table("totals", TOTALS, schedule="200ms")
    with serving(database, spark, scheduler_interval="50ms"):
        wait_for_leader(database)
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'millstream run%%'"
        for amount in (1, 2, 3):
            writer.execute("UPDATE orders SET amount = %s WHERE id = 7", (amount,))
            assert wait_until(writer.execute(end).fetchall)
            seen("totals", TOTALS)


def test_a_stream_table_that_cannot_be_refreshed_does_not_hold_up_the_others(
    database: str, spark: SparkSession, ms: Millstream, writer: psycopg.Connection, seen: Seen
) -> None:
    ms.create_stream_table("totals", TOTALS, schedule="200ms")
    ms.create_stream_table(
        "shares", "SELECT id, 100 / amount AS share FROM orders", schedule="200ms"
    )
    ms.create_stream_table("names", "SELECT id, name FROM people", schedule="200ms")
    with serving(database, spark, scheduler_interval="50ms"), psycopg.connect(database) as locker:
        wait_for_leader(database)
        locker.execute("LOCK TABLE people IN ACCESS EXCLUSIVE MODE")
        writer.execute("UPDATE orders SET amount = 0 WHERE id = 3")
        seen("totals", TOTALS)
        failed = "SELECT failed_tries, next_try_at > now() FROM millstream.stream_tables WHERE name = 'shares'"
        wait_until(lambda: (writer.execute(failed).fetchone() or (0,))[0] > 0)
        writer.execute("UPDATE orders SET amount = 5 WHERE id = 3")
        locker.execute("INSERT INTO people VALUES (3, 'Barbara')")
        locker.commit()
        seen("shares", "SELECT id, 100 / amount FROM orders")
        seen("names", "SELECT id, name FROM people")


def test_the_scheduler_keeps_away_from_what_a_request_works_on(
    database: str, spark: SparkSession, writer: psycopg.Connection, seen: Seen
) -> None:
    create = "SELECT millstream.create_stream_table(%s, %s, schedule => '200ms')"
    verify = "SELECT millstream.verify_stream_table('totals')"
    with serving(database, spark, scheduler_interval="20ms"):
        wait_for_leader(database)
        for name, query in (("totals", TOTALS), ("highest", HIGHEST)):
            [(request,)] = writer.execute(create, (name, query)).fetchall()
            writer.execute(f"CALL millstream.wait_for({request})".encode())
        for amount in (1, 2, 3):
            writer.execute("UPDATE orders SET amount = %s WHERE id = 7", (amount,))
            [(request,)] = writer.execute(verify).fetchall()
            writer.execute(f"CALL millstream.wait_for({request})".encode())
        seen("highest", f"SELECT max(total) FROM ({TOTALS}) AS t")
    troubles = (
        "SELECT name, h.status, reason, h.started_at::text, h.error::text FROM millstream.refresh_history AS h"
        " JOIN millstream.stream_tables AS t ON t.id = stream_table_id WHERE h.status NOT IN ('COMPLETED', 'RUNNING')"
    )
    assert writer.execute(troubles).fetchall() == []


def test_wait_visible_returns_soon_for_a_source_on_wal_without_writes(
    database: str,
    spark: SparkSession,
    ms: Millstream,
    writer: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hour = 3600.0
    never = Options(idle_bytes=1 << 40, idle_at_most=hour, heartbeat_interval=hour)
    monkeypatch.setattr(follower, "_options", lambda settings: never)
    writer.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    ms.create_stream_table("totals", TOTALS, schedule="200ms")
    with serving(
        database,
        spark,
        scheduler_interval="50ms",
        heartbeat_interval="1h",
        heartbeat_timeout="2h",
        verify_budget=0,
    ):
        wait_until(
            lambda: (
                writer.execute("SELECT cdc_mode FROM millstream.sources").fetchall() == [("WAL",)]
            )
        )
        for number in range(3):
            # WAL goes on, with nothing in it that is captured.
            writer.execute("INSERT INTO people VALUES (%s, 'Edsger')", (10 + number,))
            writer.execute("CALL millstream.wait_visible('totals', '90 s')")


def test_a_program_can_embed_it_and_stop_it_in_the_middle(
    database: str, spark: SparkSession
) -> None:
    with serving(database, spark):
        wait_for_leader(database)
    with millstream.connect(database, spark=spark) as ms:
        assert ms.status() == []
        assert ms.app.conn.execute("SELECT count(*) FROM millstream.services").fetchone() == (0,)


def test_a_failing_stream_table_that_becomes_stale_is_reported_with_the_cause(
    database: str,
    spark: SparkSession,
    ms: Millstream,
    writer: psycopg.Connection,
    another: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "FRESHNESS", 0.1)
    listener = another()
    ms.create_stream_table("names", "SELECT id, name FROM people", schedule="200ms")
    listener.execute("LISTEN millstream_alert")
    writer.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;"
        "CREATE TRIGGER fail AFTER INSERT ON names FOR EACH STATEMENT EXECUTE FUNCTION fail();"
        "INSERT INTO people VALUES (3, 'Edsger')"
    )
    heard = (json.loads(one.payload) for one in listener.notifies(timeout=90))
    # Not suspended meanwhile: that would end its being stale.
    with serving(database, spark, scheduler_interval="50ms", max_consecutive_errors=100):
        wait_for_leader(database)
        told = list(takewhile(lambda alert: alert["alert"] != "stale", heard))
        assert {alert["alert"] for alert in told} == {"refresh_failed"}
        writer.execute("DROP TRIGGER fail ON names")
        back = next(alert for alert in heard if alert["alert"] == "refresh_completed")
    assert (back["had_failed"], back["rows_inserted"]) == (True, 1)


SLOW = ("north", "south", "east", "west")
OVERLOAD = (
    "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;"
    + "".join(
        f"CREATE TRIGGER dawdle AFTER INSERT OR UPDATE ON {name} FOR EACH STATEMENT EXECUTE FUNCTION dawdle();"
        for name in SLOW
    )
)
REFRESHED = (
    "SELECT t.name, count(*) FROM millstream.refresh_history AS h JOIN millstream.stream_tables AS t"
    " ON t.id = h.stream_table_id WHERE h.status = 'COMPLETED' AND h.started_at > %s GROUP BY t.name"
)


def test_a_service_that_cannot_keep_all_targets_says_so_and_lets_none_starve(
    database: str,
    spark: SparkSession,
    ms: Millstream,
    writer: psycopg.Connection,
    another: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four stream tables that take a second each, every second, for one worker; and one with a
    sooner deadline.
    """
    monkeypatch.setattr(upkeep, "FRESHNESS", 0.1)
    for number, name in enumerate(SLOW):
        ms.create_stream_table(
            name, f"SELECT id, amount FROM orders WHERE region = {number}", schedule="1s"
        )
    ms.create_stream_table("names", "SELECT id, name FROM people", schedule="200ms")
    writer.execute(OVERLOAD.encode())
    listener = another()
    listener.execute("LISTEN millstream_alert")

    def refreshed(since: datetime) -> dict[str, int]:
        writer.execute(
            "UPDATE orders SET amount = amount + 1 WHERE id <= 20; UPDATE people SET name = name || 'x'"
        )
        return dict(writer.execute(REFRESHED, (since,)).fetchall())

    def has_heard() -> list[dict[str, Any]]:
        refreshed(datetime.now(UTC))
        heard = (json.loads(one.payload) for one in listener.notifies(timeout=0))
        return [alert for alert in heard if alert["alert"] == "falling_behind"]

    with serving(
        database, spark, scheduler_interval="50ms", max_concurrent_refreshes=1, verify_budget=0
    ):
        [alert] = wait_until(has_heard, pause=0.1)
        assert (alert["workers"], alert["count"] >= 1) == (1, True)
        assert alert["workers_needed"] > 1
        [(moment,)] = writer.execute("SELECT clock_timestamp()").fetchall()
        every = (*SLOW, "names")
        assert wait_until(lambda: all(refreshed(moment).get(name, 0) >= 2 for name in every))
        writer.execute("DROP FUNCTION dawdle() CASCADE")
