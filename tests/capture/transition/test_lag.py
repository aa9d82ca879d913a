"""Alerts about the lag of the slot: once each time that it rises above a setting."""

from __future__ import annotations

import json
from collections.abc import Callable

from millstream.capture.transition import lag
from millstream.capture.transition.lag import LagWatch
from millstream.capture.wal import slot
from millstream.catalog.installation import install
from millstream.postgres.connection import Connection
from millstream.settings import Settings


def test_a_lag_around_the_setting_is_one_alert() -> None:
    watch, settings = LagWatch(), Settings(slot_lag_warning=100, slot_lag_critical=1000)
    assert [watch.look(lag, settings) for lag in (100, 101, 99, 101, 51)] == [
        [],
        ["slot_lag_warning"],
        [],
        [],
        [],
    ]
    assert [watch.look(lag, settings) for lag in (50, 101)] == [[], ["slot_lag_warning"]]


def test_a_lag_above_both_settings_is_both_alerts_and_the_second_comes_again_by_itself() -> None:
    watch, settings = LagWatch(), Settings(slot_lag_warning=100, slot_lag_critical=1000)
    both = ["slot_lag_warning", "slot_lag_critical"]
    assert [watch.look(lag, settings) for lag in (5000, 6000, 600, 400)] == [both, [], [], []]
    # It was above half of the warning all the time.
    assert [watch.look(lag, settings) for lag in (900, 1001)] == [[], ["slot_lag_critical"]]


def test_without_a_slot_nothing_lags(conn: Connection) -> None:
    install.install(conn)
    assert lag.check(conn, Settings(), LagWatch()) == 0


def test_an_alert_names_the_slot_its_lag_and_the_limit(
    conn: Connection, database: str, another: Callable[[], Connection]
) -> None:
    install.install(conn)
    slot.publish(conn, [])
    made = slot.create(conn, database)
    listener = another()
    listener.execute("LISTEN millstream_alert")
    conn.execute("CREATE TABLE t AS SELECT repeat('x', 100) FROM generate_series(1, 20000)")
    watch = LagWatch()
    for limit, critical in ((1 << 20, 1 << 30), (1 << 19, 1 << 20)):
        behind = lag.check(
            conn, Settings(slot_lag_warning=limit, slot_lag_critical=critical), watch
        )
        assert behind > 1 << 20
    told = [json.loads(one.payload) for one in listener.notifies(timeout=60, stop_after=2)]
    assert [one["alert"] for one in told] == ["slot_lag_warning", "slot_lag_critical"]
    assert [one["limit_bytes"] for one in told] == [1 << 20, 1 << 20]
    assert {one["slot"] for one in told} == {made.name}
    assert all(one["lag_bytes"] > 1 << 20 for one in told)
    slot.drop(conn, made.name)
