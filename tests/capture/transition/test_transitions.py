"""A source moves to the log by itself, and comes back by itself when the log fails; its readers
stay exact.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from pyspark.sql import SparkSession

import millstream
from millstream.capture.transition import cutover as steps
from millstream.capture.transition import transitions
from millstream.capture.transition.context import TransitionMemory
from millstream.capture.trigger.inventory import triggers
from millstream.capture.wal import slot
from millstream.catalog import slots, sources
from millstream.client import Millstream
from millstream.errors import BadSource
from millstream.postgres.connection import Connection
from millstream.settings import Settings
from millstream.testing import oracle

pytestmark = pytest.mark.spark

TOTALS = "SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region"
NAMED = "SELECT o.id, r.name, o.amount FROM orders AS o JOIN regions AS r ON r.id = o.region"


@pytest.fixture(autouse=True)
def tables(conn: Connection) -> None:
    """Orders tell the log all of their old rows, regions do not."""
    conn.execute("CREATE TABLE regions (id text PRIMARY KEY, name text)")
    conn.execute("INSERT INTO regions VALUES ('n', 'north'), ('s', 'south')")
    conn.execute("CREATE TABLE orders (id int PRIMARY KEY, region text, amount numeric, note text)")
    conn.execute(
        "INSERT INTO orders SELECT g, (ARRAY['n', 's'])[1 + g % 2], g FROM generate_series(1, 50) AS g"
    )
    conn.execute("ALTER TABLE orders REPLICA IDENTITY FULL")


def ticked(ms: Millstream) -> dict[str, tuple[str, str]]:
    """A tick that also takes the next step of every hand-over."""
    ms.app.steps = TransitionMemory()
    return {report.name: (report.action, report.reason) for report in ms.tick()}


def mode(ms: Millstream, name: str = "orders") -> str:
    return next(source.mode for source in sources.every(ms.app.conn) if source.name == name)


def until(ms: Millstream, goal: str, name: str = "orders", seconds: float = 30.0) -> None:
    """Tick until a source is in a mode."""
    deadline = time.monotonic() + seconds
    while mode(ms, name) != goal:
        assert time.monotonic() < deadline, sources.every(ms.app.conn)
        ticked(ms)


@pytest.fixture
def logged(ms: Millstream, conn: Connection) -> Millstream:
    """Totals of orders, captured from WAL."""
    ms.create_stream_table("totals", TOTALS, schedule="continuous")
    until(ms, "WAL")
    ticked(ms)
    return ms


def changed(
    ms: Millstream, conn: Connection, name: str = "totals", query: str = TOTALS
) -> tuple[str, str]:
    """Change something, refresh, compare with PostgreSQL; what was done, and why."""
    conn.execute("UPDATE orders SET amount = amount + 1, region = 's' WHERE id = 2")
    conn.execute("DELETE FROM orders WHERE id = (SELECT max(id) FROM orders)")
    conn.execute("INSERT INTO orders SELECT max(id) + 1, 'n', 7 FROM orders")
    report = ms.refresh(name)
    oracle.check(ms.app.conn, query, name)
    return report.action, report.reason


DIFFERENTIAL = ("DIFFERENTIAL", "CHANGED")


def alerts(listener: Connection, *kinds: str) -> list[dict[str, Any]]:
    """The alerts of these kinds that the listener has heard; it waits for the first one."""
    deadline = time.monotonic() + 60
    while True:
        told = [json.loads(one.payload) for one in listener.notifies(timeout=0.2)]
        if found := [one for one in told if one["alert"] in kinds]:
            return found
        assert time.monotonic() < deadline, f"no alert of {kinds}"


# -- there and back ----------------------------------------------------------------------------


def test_a_source_moves_to_wal_by_itself_and_sends_an_alert(
    ms: Millstream, conn: Connection, another: Callable[[], Connection]
) -> None:
    listener = another()
    listener.execute("LISTEN millstream_cdc_transition; LISTEN millstream_alert")
    ms.create_stream_table("totals", TOTALS, schedule="continuous")
    relid = sources.every(ms.app.conn)[0].relid
    seen = set[str]()
    for _ in range(20):
        assert changed(ms, conn) == DIFFERENTIAL
        ticked(ms)
        seen.add(mode(ms))
        if mode(ms) == "WAL" and not triggers(ms.app.conn, [relid])[relid]:
            break
    assert {"TRANSITIONING", "WAL"} <= seen
    assert not triggers(ms.app.conn, [relid])[relid], "writers pay nothing any more"
    assert changed(ms, conn) == DIFFERENTIAL
    assert ms.refresh("totals").action == "NO_DATA"
    heard = ((one.channel, json.loads(one.payload)) for one in listener.notifies(timeout=60))
    told = list(islice((one for one in heard if one[1].get("alert") != "refresh_completed"), 3))
    assert [
        (one["old_mode"], one["new_mode"])
        for channel, one in told
        if channel == "millstream_cdc_transition"
    ] == [
        ("TRIGGER", "TRANSITIONING"),
        ("TRANSITIONING", "WAL"),
    ]
    assert [one["alert"] for channel, one in told if channel == "millstream_alert"] == [
        "cdc_transition_complete"
    ]


def test_one_stream_table_reads_sources_on_triggers_and_on_wal(
    ms: Millstream, conn: Connection
) -> None:
    ms.create_stream_table("named", NAMED, schedule="continuous")
    until(ms, "WAL")
    assert mode(ms, "regions") == "TRIGGER"
    for name in ("west", "east"):
        conn.execute("UPDATE regions SET name = %s WHERE id = 's'", (name,))
        assert changed(ms, conn, "named", NAMED) == DIFFERENTIAL


def test_it_returns_by_wish_and_leaves_nothing_behind(logged: Millstream, conn: Connection) -> None:
    conn.execute("INSERT INTO orders VALUES (101, 'n', 1)")
    logged.alter_stream_table("totals", cdc_mode="trigger")
    until(logged, "TRIGGER")
    conn.execute("INSERT INTO orders VALUES (102, 'n', 1)")
    assert changed(logged, conn) == DIFFERENTIAL
    ticked(logged)
    assert (
        conn.execute(
            "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        ).fetchall()
        == []
    )
    assert conn.execute("SELECT 1 FROM pg_publication").fetchall() == []
    assert changed(logged, conn) == DIFFERENTIAL
    logged.alter_stream_table("totals", cdc_mode="auto")
    until(logged, "WAL")
    assert changed(logged, conn) == DIFFERENTIAL


def test_a_reader_of_one_more_column_has_the_source_back_on_triggers_and_both_are_exact(
    logged: Millstream, conn: Connection
) -> None:
    conn.execute("UPDATE orders SET amount = 5, note = 'x' WHERE id = 4")
    notes = "SELECT note, count(*) AS n FROM orders GROUP BY note"
    logged.create_stream_table("notes", notes, schedule="continuous")
    assert mode(logged) == "TRIGGER"
    conn.execute("UPDATE orders SET note = 'y' WHERE id < 9")
    assert changed(logged, conn) == DIFFERENTIAL
    assert changed(logged, conn, "notes", notes) == DIFFERENTIAL
    until(logged, "WAL")
    conn.execute("UPDATE orders SET note = NULL WHERE id < 5")
    assert changed(logged, conn, "notes", notes) == DIFFERENTIAL
    assert changed(logged, conn) == DIFFERENTIAL


def test_a_second_reader_of_the_same_columns_leaves_it_where_it_is(
    logged: Millstream, conn: Connection
) -> None:
    regions = "SELECT region, max(amount) AS most FROM orders GROUP BY region"
    logged.create_stream_table("most", regions, schedule="continuous")
    assert mode(logged) == "WAL"
    assert changed(logged, conn) == DIFFERENTIAL
    assert changed(logged, conn, "most", regions) == DIFFERENTIAL


@pytest.mark.parametrize("when", ["TRANSITIONING", "WAL"])
def test_dropping_the_last_reader_takes_everything_away(
    ms: Millstream, conn: Connection, when: str
) -> None:
    ms.create_stream_table("totals", TOTALS, schedule="continuous")
    relid = sources.every(ms.app.conn)[0].relid
    until(ms, when)
    ms.drop_stream_table("totals")
    assert sources.every(ms.app.conn) == []
    assert conn.execute(
        "SELECT to_regclass(%s)", (f"millstream_changes.changes_{relid}",)
    ).fetchall() == [(None,)]
    assert (
        conn.execute(
            "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        ).fetchall()
        == []
    )
    assert conn.execute("SELECT 1 FROM pg_publication_rel").fetchall() == []
    conn.execute("DELETE FROM orders WHERE id = 1")


# -- the log fails -----------------------------------------------------------------------------


def _drop_slot(ms: Millstream, conn: Connection) -> None:
    ms.app.follower.stop()
    deadline = time.monotonic() + 20
    drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
    while not conn.execute(f"{drop} AND NOT active".encode()).fetchall():
        assert time.monotonic() < deadline


def _publish_anew(ms: Millstream, conn: Connection) -> None:
    name = slot.name_of(ms.app.conn)
    conn.execute(f"DROP PUBLICATION {name}; CREATE PUBLICATION {name} FOR TABLE orders".encode())


def _unpublish_for_a_while(ms: Millstream, conn: Connection) -> None:
    name = slot.name_of(ms.app.conn)
    conn.execute(f"ALTER PUBLICATION {name} DROP TABLE orders".encode())
    conn.execute("UPDATE orders SET amount = 1000 WHERE id = 7")
    conn.execute(f"ALTER PUBLICATION {name} ADD TABLE orders".encode())


def _advance_slot(ms: Millstream, conn: Connection) -> None:
    ms.app.follower.stop()
    conn.execute("UPDATE orders SET amount = 1000 WHERE id = 7")
    deadline = time.monotonic() + 20
    advance = (
        "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots "
        "WHERE database = current_database() AND NOT active"
    )
    while not conn.execute(advance).fetchall():
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (_drop_slot, "LOG_LOST"),
        (_publish_anew, "CAPTURE_GAP"),
        (_unpublish_for_a_while, "CAPTURE_GAP"),
        (_advance_slot, "LOG_LOST"),
    ],
)
def test_when_wal_is_lost_triggers_take_over_and_readers_reinitialise_by_difference(
    logged: Millstream,
    conn: Connection,
    fault: Callable[[Millstream, Connection], None],
    reason: str,
) -> None:
    conn.execute("UPDATE orders SET amount = 77 WHERE id = 3")
    fault(logged, conn)
    conn.execute("UPDATE orders SET amount = 88 WHERE id = 5")
    deadline = time.monotonic() + 30
    actions = [ticked(logged).get("totals")]
    while mode(logged) == "WAL" or "REINITIALIZE" not in {one[0] for one in actions if one}:
        assert time.monotonic() < deadline, actions
        actions.append(ticked(logged).get("totals"))
    assert ("REINITIALIZE", reason) in {
        (one.action, one.reason) for one in logged.history("totals")
    }
    oracle.check(logged.app.conn, TOTALS, "totals")
    assert changed(logged, conn) == DIFFERENTIAL
    (health,) = conn.execute(
        "SELECT cdc_mode, reason FROM millstream.check_cdc_health()"
    ).fetchall()
    assert health[0] == "TRIGGER"
    assert health[1].startswith("Returned to triggers: ")


def test_a_slot_lost_during_the_transition_to_wal_reinitialises_no_reader(
    ms: Millstream, conn: Connection
) -> None:
    """Triggers were in charge all the time; the readers were reinitialised all the same."""
    ms.create_stream_table("totals", TOTALS, schedule="continuous")
    (source,) = sources.every(ms.app.conn)
    steps.begin(ms.app.conn, source.relid)
    steps.publish(ms.app.conn, ms.app.dsn, source.relid)
    assert mode(ms) == "TRANSITIONING"
    conn.execute("UPDATE orders SET amount = 77 WHERE id = 3")
    _drop_slot(ms, conn)
    conn.execute("LISTEN millstream_alert")
    actions = list[tuple[str, str]]()
    deadline = time.monotonic() + 30
    while mode(ms) == "TRANSITIONING":
        assert time.monotonic() < deadline
        actions += ticked(ms).values()
    actions.append(changed(ms, conn))
    assert {action for action, _ in actions} <= {"DIFFERENTIAL", "NO_DATA"}
    reason = str(sources.every(ms.app.conn)[0].reason)
    assert reason.startswith("Returned to triggers: ")
    [failed] = alerts(conn, "cdc_transition_failed")
    assert (failed["source"], failed["reason"]) == ('"public"."orders"', reason)


def test_a_weaker_replica_identity_returns_the_source_to_triggers_without_reinitialising(
    logged: Millstream, conn: Connection
) -> None:
    conn.execute("UPDATE orders SET amount = 77 WHERE id = 3")
    conn.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    conn.execute("INSERT INTO orders VALUES (103, 'n', 1)")
    until(logged, "TRIGGER")
    assert changed(logged, conn) == DIFFERENTIAL
    assert "replica identity" in str(sources.every(logged.app.conn)[0].reason)


def test_changes_without_old_rows_reinitialise_readers(
    logged: Millstream, conn: Connection
) -> None:
    conn.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    conn.execute("UPDATE orders SET amount = 99 WHERE id = 3")
    report = logged.refresh("totals")
    assert (report.action, report.reason) == ("REINITIALIZE", "CAPTURE_GAP")
    oracle.check(logged.app.conn, TOTALS, "totals")


def test_a_slot_that_lags_too_far_behind_is_given_up_in_time(
    database: str, spark: SparkSession, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(slot_lag_warning=1 << 20, slot_lag_critical=2 << 20)
    with millstream.connect(database, spark=spark, settings=settings) as ms:
        ms.create_stream_table("totals", TOTALS, schedule="continuous")
        until(ms, "WAL")
        ms.app.follower.stop()
        monkeypatch.setattr(ms.app.follower, "follow", lambda: None)
        conn.execute("LISTEN millstream_alert")
        conn.execute("CREATE TABLE other AS SELECT repeat('x', 100) FROM generate_series(1, 50000)")
        hand_over_now(ms)
        monkeypatch.undo()
        assert mode(ms) == "TRIGGER"
        assert "lags" in str(sources.every(ms.app.conn)[0].reason)
        told = [json.loads(one.payload) for one in conn.notifies(timeout=60, stop_after=2)]
        assert [(one["alert"], one["limit_bytes"] >> 20) for one in told] == [
            ("slot_lag_warning", 1),
            ("slot_lag_critical", 2),
        ]
        assert min(one["lag_bytes"] for one in told) > 2 << 20
        assert changed(ms, conn) == DIFFERENTIAL


def hand_over_now(ms: Millstream) -> None:
    ms.app.steps = TransitionMemory()
    transitions.advance(ms.app)


def reads_log(ms: Millstream) -> bool:
    return ms.app.follower.pipeline is not None


def identity(conn: Connection, table: str) -> str:
    query = "SELECT relreplident::text FROM pg_class WHERE oid = %s::regclass"
    return str(conn.execute(query, (table,)).fetchall()[0][0])


def test_a_replica_identity_set_by_millstream_is_restored(
    database: str, spark: SparkSession, conn: Connection
) -> None:
    settings = Settings(auto_replica_identity=True)
    conn.execute("ALTER TABLE orders REPLICA IDENTITY USING INDEX orders_pkey")
    with millstream.connect(database, spark=spark, settings=settings) as ms:
        for goes in ("drop", "uninstall"):
            ms.create_stream_table("totals", TOTALS, schedule="continuous")
            until(ms, "WAL")
            assert identity(conn, "orders") == "f"
            if goes == "drop":
                ms.drop_stream_table("totals")
            else:
                ms.uninstall()
            assert identity(conn, "orders") == "i"


def test_a_child_that_was_added_later_is_captured_too(ms: Millstream, conn: Connection) -> None:
    ms.create_stream_table("totals", TOTALS, schedule="continuous")
    until(ms, "WAL")
    conn.execute("CREATE TABLE more () INHERITS (orders); ALTER TABLE more REPLICA IDENTITY FULL")
    conn.execute("INSERT INTO more VALUES (201, 'n', 9)")
    report = ms.refresh("totals")
    assert (report.action, report.reason) == ("REINITIALIZE", "PARTITIONS_CHANGED")
    # It need not rest before it is handed over again.
    sources.set_reason(ms.app.conn, sources.every(ms.app.conn)[0].relid, "")
    until(ms, "WAL")
    conn.execute("UPDATE more SET amount = 10")
    assert changed(ms, conn) == DIFFERENTIAL


# -- several processes -------------------------------------------------------------------------


def test_another_process_refreshes_while_one_reads_wal_and_by_itself_afterwards(
    logged: Millstream, conn: Connection, database: str, spark: SparkSession
) -> None:
    with millstream.connect(database, spark=spark) as other:
        assert changed(other, conn) == DIFFERENTIAL
        assert not reads_log(other)
        logged.app.follower.stop()
        assert changed(other, conn) == DIFFERENTIAL
        assert reads_log(other)
    assert changed(logged, conn) == DIFFERENTIAL


# -- what cannot be ----------------------------------------------------------------------------


def test_the_reason_is_recorded_if_a_source_cannot_be_captured_from_wal(
    ms: Millstream, conn: Connection
) -> None:
    ms.create_stream_table("names", "SELECT id, name FROM regions", schedule="continuous")
    ticked(ms)
    (health,) = conn.execute(
        "SELECT source::text, cdc_mode, reason FROM millstream.check_cdc_health()"
    ).fetchall()
    assert health[:2] == ("regions", "TRIGGER")
    assert 'ALTER TABLE "public"."regions" REPLICA IDENTITY FULL' in health[2]


def test_create_and_status_name_the_statement_that_allows_capture_from_wal(
    ms: Millstream, conn: Connection
) -> None:
    report = ms.create_stream_table("named", NAMED, schedule="continuous")
    assert report is not None
    (notice,) = report.notices
    assert notice.startswith("public.regions is captured by triggers. ")
    (status,) = ms.status()
    assert {source.name: source.reason is None for source in status.sources} == {
        "public.orders": True,
        "public.regions": False,
    }
    statement = notice[notice.index("ALTER TABLE") : notice.index(";") + 1]
    assert statement in str(status.sources)
    conn.execute(statement.encode())
    until(ms, "WAL", "regions")


def test_wal_alone_is_refused_where_it_cannot_be(ms: Millstream, conn: Connection) -> None:
    with pytest.raises(BadSource, match="regions") as trouble:
        ms.create_stream_table("names", "SELECT id, name FROM regions", cdc_mode="wal")
    assert "REPLICA IDENTITY FULL" in trouble.value.detail
    assert ms.status() == []
    ms.create_stream_table("names", "SELECT id, name FROM regions")
    with pytest.raises(BadSource):
        ms.alter_stream_table("names", cdc_mode="wal")
    ms.create_stream_table("totals", TOTALS, cdc_mode="wal", schedule="continuous")
    until(ms, "WAL")


def test_a_transition_that_takes_too_long_is_aborted_with_the_reason(
    database: str, spark: SparkSession, conn: Connection, another: Callable[[], Connection]
) -> None:
    settings = Settings(wal_transition_timeout="1ms")
    with millstream.connect(database, spark=spark, settings=settings) as ms:
        ms.create_stream_table("totals", TOTALS, schedule="continuous")
        relid = sources.every(ms.app.conn)[0].relid
        steps.begin(ms.app.conn, relid)
        steps.publish(ms.app.conn, database, relid)
        slow = another()
        slow.execute("BEGIN; INSERT INTO regions VALUES ('x', 'y')")
        conn.execute("LISTEN millstream_alert")
        hand_over_now(ms)
        slow.execute("COMMIT")
        told = [json.loads(one.payload) for one in conn.notifies(timeout=60, stop_after=1)]
        assert (told[0]["alert"], told[0]["source"]) == (
            "cdc_transition_failed",
            '"public"."orders"',
        )
        assert "longer than" in told[0]["reason"]
        source = sources.every(ms.app.conn)[0]
        assert source.mode == "TRIGGER"
        assert "longer than" in str(source.reason)
        hand_over_now(ms)
        assert slots.get(ms.app.conn, slot.name_of(ms.app.conn)) is None
        assert changed(ms, conn) == DIFFERENTIAL


def test_a_transaction_elsewhere_that_does_not_end_is_not_waited_for(
    database: str, spark: SparkSession, conn: Connection, another: Callable[[], Connection]
) -> None:
    settings = Settings(wal_transition_timeout="4s")
    with millstream.connect(database, spark=spark, settings=settings) as ms:
        ms.create_stream_table("totals", TOTALS, schedule="continuous")
        relid = sources.every(ms.app.conn)[0].relid
        steps.begin(ms.app.conn, relid)
        slot.publish(ms.app.conn, [])
        slot.ensure(ms.app.conn, database)
        slow = another()
        slow.execute("BEGIN; INSERT INTO regions VALUES ('x', 'y')")
        steps.publish(ms.app.conn, database, relid)
        until(ms, "WAL", seconds=10)
        slow.execute("INSERT INTO orders VALUES (105, 'n', 3)")
        assert changed(ms, conn) == DIFFERENTIAL
        slow.execute("COMMIT")
        assert changed(ms, conn) == DIFFERENTIAL
