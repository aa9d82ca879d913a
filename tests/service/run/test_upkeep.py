"""Alerts about freshness are sent, and the history is kept in order, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from millstream.catalog import history, stream_tables
from millstream.catalog.history import HistoryEntry
from millstream.catalog.installation import install
from millstream.catalog.processes import leadership
from millstream.catalog.processes.leadership import Epoch
from millstream.errors import Deposed
from millstream.postgres.connection import Connection
from millstream.scheduler.agenda import Agenda
from millstream.scheduler.freshness import Watched, watched
from millstream.scheduler.graph import Graph
from millstream.service.run.upkeep import Upkeep
from millstream.settings import Settings
from millstream.testing.catalog_rows import stream_table

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
LATE = NOON + timedelta(minutes=1)
TABLE = Watched(1, "public.t", timedelta(seconds=10), NOON)
SETTINGS = Settings(history_retention="1d")


@pytest.fixture
def epoch(conn: Connection) -> Epoch:
    install.install(conn)
    return leadership.take_over(conn, uuid4())


def test_alerts_are_sent_once_and_not_while_refreshes_are_off(
    conn: Connection, epoch: Epoch, another: Callable[[], Connection]
) -> None:
    listener = another()
    listener.execute("LISTEN millstream_alert")
    off = SETTINGS.model_copy(update={"enabled": False})
    upkeep = Upkeep(epoch)
    for settings, now in (
        (SETTINGS, NOON),
        (off, LATE),
        (SETTINGS, LATE),
        (SETTINGS, LATE + timedelta(minutes=1)),
    ):
        upkeep.look(conn, settings, [TABLE], now)
        upkeep.look(conn, settings, [TABLE], now)
    conn.execute('NOTIFY millstream_alert, \'{"alert": "the end"}\'')
    heard = iter(json.loads(one.payload) for one in listener.notifies(timeout=60))
    told = [next(heard) for _ in range(3)]
    assert [one["alert"] for one in told] == ["stale", "falling_behind", "the end"]
    assert told[0]["age_seconds"] == 120.0


def test_a_former_leader_sends_no_alert(conn: Connection, epoch: Epoch) -> None:
    upkeep = Upkeep(epoch)
    upkeep.look(conn, SETTINGS, [TABLE], NOON)
    leadership.take_over(conn, uuid4())
    with pytest.raises(Deposed):
        upkeep.look(conn, SETTINGS, [TABLE], LATE)


def test_what_a_dead_process_left_is_settled_at_once_and_old_entries_go_in_parts(
    conn: Connection, epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PRUNED_AT_ONCE", 2)
    id = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name="t", query="", canonical_query="", schedule="1s"
        ),
    ).id
    old = HistoryEntry(id, "FULL", "INITIAL", "COMPLETED", "MANUAL", NOON)
    history.add_all(conn, [old] * 5)
    history.exchange_running(
        conn, [], [HistoryEntry(id, "FULL", "INITIAL", "RUNNING", "MANUAL", NOON)], 100
    )
    conn.execute("UPDATE millstream.refresh_history SET backend_start = NULL")
    upkeep, left = Upkeep(epoch), list[list[str]]()
    for _ in range(5):
        upkeep.look(conn, SETTINGS, [], LATE)
        left.append([entry.status for entry in history.recent(conn, id)])
    assert left[0] == ["FAILED", *["COMPLETED"] * 3]
    assert left[1:] == [["FAILED", "COMPLETED"], *[["FAILED"]] * 3]
    assert not upkeep.is_due()


def test_sql_finds_stale_stream_tables_with_a_cron_schedule(conn: Connection, epoch: Epoch) -> None:
    """Of an hourly one, what is older than two hours; in SQL nobody works out a cron expression."""
    new = stream_tables.NewStreamTable(
        "public", "t", query="", canonical_query="", schedule="@hourly"
    )
    id = stream_tables.add(conn, new).id
    aged = (
        "UPDATE millstream.stream_tables SET status = 'ERROR', frontier = '1:1:', cut_at = clock_timestamp(),"
        " data_timestamp = clock_timestamp() - interval '1 minute' * %s"
    )
    stale = "SELECT is_stale FROM millstream.stream_tables_info"

    def is_stale(minutes: int) -> bool:
        conn.execute(aged, (minutes,))
        return bool(conn.execute(stale).fetchall()[0][0])

    assert not is_stale(180)
    upkeep = Upkeep(epoch)
    found = [watched(table) for table in stream_tables.every(conn)]
    upkeep.look(conn, SETTINGS, [one for one in found if one], NOON)
    assert upkeep.promised == {id: timedelta(hours=1)}
    assert [is_stale(minutes) for minutes in (60, 119, 123, 180)] == [False, False, True, True]
    conn.execute("UPDATE millstream.stream_tables SET schedule = 'manual'")
    assert not is_stale(180)


def test_the_agenda_returns_the_stream_tables_to_watch() -> None:
    agenda = Agenda()
    fresh = stream_table(1, schedule="10s", data_timestamp=NOON, cut_at=NOON)
    agenda.load(
        [fresh, stream_table(2, schedule="manual", data_timestamp=NOON, cut_at=NOON)], Graph({}, ())
    )
    [found] = agenda.watched()
    assert (found.id, found.target, found.as_of) == (1, timedelta(seconds=10), NOON)
    agenda.found_nothing([1], LATE)
    assert [one.as_of for one in agenda.watched()] == [LATE]
