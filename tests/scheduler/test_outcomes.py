"""Failed refreshes are recorded, and a stream table that fails again and again is suspended."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from millstream.catalog.processes.mutex import Mutex
from millstream.client import Millstream
from millstream.errors import RefreshFailed
from millstream.postgres.connection import Connection
from millstream.refresh.evaluate import Evaluation
from millstream.scheduler.due import due
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff

pytestmark = pytest.mark.spark

# What makes every refresh of a_st fail, and what ends that.
BREAK = """
    CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
    CREATE TRIGGER fail AFTER INSERT ON a_st FOR EACH STATEMENT EXECUTE FUNCTION fail();
    INSERT INTO t VALUES (9, 9, 9);
"""
MEND = "DROP TRIGGER fail ON a_st"


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    """Two sources, t and u, with a stream table over each: a_st and b_st."""
    writer.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, w int); INSERT INTO t VALUES (1, 1, 1)"
    )
    writer.execute(
        "CREATE TABLE u (id int PRIMARY KEY, v int, w int); INSERT INTO u VALUES (1, 1, 1)"
    )
    ms.create_stream_table("a_st", "SELECT id, v FROM t", schedule="continuous")
    ms.create_stream_table("b_st", "SELECT id, v FROM u", schedule="continuous")
    return writer


# JSON values have many types.
def alerts(listener: Connection, count: int) -> list[dict[str, Any]]:
    """Return so many alerts."""
    return [json.loads(one.payload) for one in listener.notifies(timeout=60, stop_after=count)]


def ticked(ms: Millstream) -> dict[str, str]:
    return {report.name: report.action for report in ms.tick()}


def test_an_error_of_a_library_becomes_a_millstream_error_with_its_cause_and_is_recorded(
    ms: Millstream, writer: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.execute("INSERT INTO t VALUES (2, 2, 2)")
    with monkeypatch.context() as patch:
        patch.setattr(Evaluation, "changes", lambda *_: pa.array(["x"]).cast(pa.int32()))
        with pytest.raises(RefreshFailed, match="a_st") as caught:
            ms.refresh("a_st")
        assert isinstance(caught.value.__cause__, pa.ArrowInvalid)
        assert "ArrowInvalid" in caught.value.detail
    entry = ms.history("a_st")[0]
    assert (entry.status, entry.initiated_by, entry.reason) == ("FAILED", "MANUAL", "MS402")
    assert ms.refresh("a_st").action == "DIFFERENTIAL"


def test_a_table_that_fails_is_held_back_then_suspended_until_it_is_made_active(
    ms: Millstream, writer: psycopg.Connection, another: Callable[[], Connection]
) -> None:
    listener = another()
    listener.execute("LISTEN millstream_alert")
    writer.execute(BREAK)
    tries = list[int]()
    for _ in range(3):
        end_backoff(ms.app.conn)
        assert ticked(ms) == {"b_st": "NO_DATA"}
        table = ms.app.named("a_st")
        tries.append(table.consecutive_errors)
        assert table.next_try_at is not None
        assert due([table], table.next_try_at - timedelta(milliseconds=1)) == []
    assert tries == [1, 2, 3]
    assert (table.status, table.failed_tries) == ("SUSPENDED", 1), (
        "end_backoff has reset the number of tries"
    )
    with pytest.raises(RefreshFailed):
        ms.refresh("a_st")
    assert ms.app.named("a_st").failed_tries == 1, (
        "a refresh that somebody asks for does not lengthen the back-off"
    )
    writer.execute(MEND + "; INSERT INTO t VALUES (2, 2, 2)")
    assert ticked(ms) == {"b_st": "NO_DATA"}
    failed = [entry for entry in ms.history("a_st") if entry.status == "FAILED"]
    assert [entry.initiated_by for entry in failed] == ["MANUAL", *["SCHEDULER"] * 3]
    ms.alter_stream_table("a_st", status="ACTIVE")
    assert ms.app.named("a_st").next_try_at is None
    assert "a_st" in ticked(ms)
    oracle.check(ms.app.conn, "SELECT id, v FROM t", "a_st")
    told = alerts(listener, 7)
    assert [one["alert"] for one in told] == [
        *["refresh_failed"] * 2, "auto_suspended", *["refresh_failed"] * 2, "resumed", "refresh_completed",
    ]  # fmt: skip
    assert {one["stream_table"] for one in told} == {'"public"."a_st"'}
    assert (told[2]["errors"], told[2]["code"]) == (3, "MS402")
    assert (told[0]["code"], told[0]["initiated_by"], told[0]["is_transient"]) == (
        "MS402",
        "SCHEDULER",
        False,
    )
    assert told[4]["initiated_by"] == "MANUAL"
    assert (told[5]["former_status"], told[5]["by"]) == ("SUSPENDED", "alter")
    assert told[6]["rows_inserted"] == 2


def test_a_table_locked_by_another_process_is_skipped_and_reported_once(
    ms: Millstream, writer: psycopg.Connection, database: str
) -> None:
    writer.execute("INSERT INTO t VALUES (2, 2, 2)")
    with Mutex(database) as other, other.stream_tables([ms.app.named("a_st").id]):
        for _ in range(3):
            assert ticked(ms) == {"b_st": "NO_DATA"}
    skipped = [entry for entry in ms.history("a_st") if entry.status == "SKIPPED"]
    assert [(entry.action, entry.reason, entry.initiated_by) for entry in skipped] == [
        ("SKIP", "MS401", "SCHEDULER")
    ]
    assert ms.app.named("a_st").transient_errors == 0, "the other process may be writing the row"
    assert ticked(ms)["a_st"] == "DIFFERENTIAL"
    oracle.check(ms.app.conn, "SELECT id, v FROM t", "a_st")


def test_the_back_off_grows_with_each_failed_try_and_ends_with_a_success(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(BREAK)
    tries = list[int]()
    for _ in range(2):
        writer.execute("UPDATE millstream.stream_tables SET next_try_at = NULL")
        ticked(ms)
        table = ms.app.named("a_st")
        assert table.next_try_at is not None
        tries.append(table.failed_tries)
    assert tries == [1, 2]
    writer.execute(MEND)
    ms.refresh("a_st")
    table = ms.app.named("a_st")
    assert (table.failed_tries, table.next_try_at) == (0, None)
    oracle.check(ms.app.conn, "SELECT id, v FROM t", "a_st")


def test_only_a_refresh_that_changes_rows_sends_an_alert(
    ms: Millstream, writer: psycopg.Connection, another: Callable[[], Connection]
) -> None:
    listener = another()
    listener.execute("LISTEN millstream_alert")
    ms.tick()
    writer.execute("UPDATE t SET w = 2")
    assert ticked(ms)["a_st"] == "NO_DATA", "a column that is not read"
    writer.execute("INSERT INTO t VALUES (2, 2, 2)")
    ms.tick()
    [told] = alerts(listener, 1)
    assert told.pop("duration_ms") > 0
    assert told == {
        "alert": "refresh_completed", "stream_table": '"public"."a_st"', "action": "DIFFERENTIAL", "reason": "CHANGED",
        "initiated_by": "SCHEDULER", "rows_inserted": 1, "rows_updated": 0, "rows_deleted": 0,
        "data_timestamp": ms.history("a_st", 1)[0].as_dict()["data_timestamp"], "had_failed": False,
    }  # fmt: skip


def test_a_table_in_error_that_can_be_refreshed_again_sends_resumed(
    ms: Millstream, writer: psycopg.Connection, another: Callable[[], Connection]
) -> None:
    listener = another()
    listener.execute("LISTEN millstream_alert")
    writer.execute(
        "UPDATE millstream.stream_tables SET status = 'ERROR', consecutive_errors = 1 WHERE name = 'a_st'"
    )
    assert ticked(ms)["a_st"] == "NO_DATA"
    completed, resumed = alerts(listener, 2)
    assert (completed["alert"], completed["had_failed"]) == ("refresh_completed", True)
    assert (resumed["alert"], resumed["former_status"], resumed["by"]) == (
        "resumed",
        "ERROR",
        "refresh",
    )
