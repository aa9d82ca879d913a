"""Continuous verification: what comes next, and what becomes of a difference."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.service.run.conftest import serving, wait_for_leader

from millstream import Millstream
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection
from millstream.service.run.continuous_verification import next_to_verify, verify_by_schedule
from millstream.settings import Settings
from millstream.testing.catalog_rows import stream_table
from millstream.testing.waiting import wait_until

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
FILLED = {"frontier": Snapshot(1, 1), "last_verified_at": NOON}


def test_the_one_longest_not_verified_comes_first_and_some_never() -> None:
    recent = stream_table(1, **{**FILLED, "last_verified_at": NOON + timedelta(seconds=1)})
    tables = [
        recent,
        stream_table(2, **FILLED),
        stream_table(3, **FILLED, status="SUSPENDED"),
        stream_table(4, **FILLED, schedule="manual"),
        stream_table(5, **FILLED, failed_tries=1),
        stream_table(6, **{**FILLED, "frontier": None}),
    ]
    chosen = next_to_verify(tables, [])
    assert chosen is not None
    assert chosen.id == 2
    assert next_to_verify(tables, [2]) == recent
    assert next_to_verify(tables, [1, 2]) is None


@pytest.mark.spark
def test_a_difference_is_recorded_with_evidence_and_an_alert(
    ms: Millstream, conn: Connection
) -> None:
    conn.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20)"
    )
    ms.app.settings = Settings(allow_direct_writes=True)
    ms.create_stream_table("s", "SELECT id, v FROM t")
    [(id,)] = conn.execute("SELECT id FROM millstream.stream_tables").fetchall()
    verify_by_schedule(ms.app, id)
    outcome = "SELECT last_verified_at IS NOT NULL, last_verified_ok FROM millstream.stream_tables"
    assert conn.execute(outcome).fetchall() == [(True, True)]
    conn.execute("LISTEN millstream_alert")
    conn.execute("UPDATE s SET v = 11 WHERE id = 1")
    verify_by_schedule(ms.app, id)
    assert conn.execute(outcome).fetchall() == [(True, False)]
    evidence = (
        "SELECT missing, extra, jsonb_array_length(sample) FROM millstream.verification_failures"
    )
    assert conn.execute(evidence).fetchall() == [(1, 1, 2)]
    alerts = [json.loads(notification.payload) for notification in conn.notifies(timeout=1.0)]
    found = [alert for alert in alerts if alert["alert"] == "verification_failed"]
    assert [(one["stream_table"], one["missing"], one["extra"]) for one in found] == [
        ('"public"."s"', 1, 1)
    ]
    ms.refresh("s", full=True)
    verify_by_schedule(ms.app, id)
    assert conn.execute(outcome).fetchall() == [(True, True)]


@pytest.mark.spark
def test_the_service_verifies_in_idle_time_within_its_budget(
    database: str, spark: SparkSession, ms: Millstream
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10)")
        for name in ("a", "b"):
            ms.create_stream_table(name, "SELECT id, v FROM t", schedule="1s")
        verified = "SELECT count(*) FROM millstream.stream_tables WHERE last_verified_ok"
        with serving(database, spark, verify_budget=0):
            wait_for_leader(database)
            conn.execute("INSERT INTO t VALUES (2, 20)")
            wait_until(
                lambda: conn.execute("SELECT count(*) FROM a JOIN b USING (id)").fetchone() == (2,)
            )
            assert conn.execute(verified).fetchone() == (0,)
        with serving(database, spark, verify_budget=1):
            wait_until(lambda: conn.execute(verified).fetchone() == (2,))
