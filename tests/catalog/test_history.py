"""The history of refreshes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from millstream.catalog import history, stream_tables
from millstream.catalog.history import HistoryEntry
from millstream.catalog.installation import install
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection
from millstream.testing.waiting import wait_until

AT = datetime(2024, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def id(conn: Connection) -> int:
    """A stream table's id."""
    install.install(conn)
    return stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name="t", query="", canonical_query="", schedule="1s"
        ),
    ).id


def full(id: int) -> HistoryEntry:
    return HistoryEntry(
        id, "DIFFERENTIAL", "changes", "COMPLETED", "SCHEDULER", AT, AT + timedelta(seconds=1), AT,
        Snapshot(10, 20, (12,)), 7, 1, 2, 3, 4,
        [{"alias": "o", "path": "lookup", "rows": 7}], {"spark": 50.25}, {"code": "MS402", "n": None},
    )  # fmt: skip


def test_an_entry_comes_back_as_it_was_recorded(conn: Connection, id: int) -> None:
    first = history.add(conn, full(id))
    assert history.recent(conn, id) == [replace(full(id), id=first)]


def test_an_entry_needs_little(conn: Connection, id: int) -> None:
    entry = HistoryEntry(id, "NO_DATA", "no_change", "COMPLETED", "MANUAL", AT)
    recorded = history.add(conn, entry)
    assert history.recent(conn, id) == [replace(entry, id=recorded, inputs=[])]


def test_many_are_recorded_in_one_statement_and_the_newest_come_first(
    conn: Connection, id: int
) -> None:
    entries = [replace(full(id), rows_read=number) for number in range(100)]
    ids = history.add_all(conn, entries)
    assert ids == sorted(ids)
    assert [entry.rows_read for entry in history.recent(conn, id, 3)] == [99, 98, 97]
    assert len(history.recent(conn, id)) == 20
    assert history.recent(conn, id + 1) == []
    assert history.add_all(conn, []) == []


def test_an_entry_is_json(id: int) -> None:
    printed = full(id).as_dict()
    assert printed["frontier"] == "10:20:12"
    assert printed["started_at"] == "2024-06-01T12:00:00.123456+00:00"
    json.dumps(printed)


@pytest.mark.parametrize(
    ("column", "value"), [("action", "GUESS"), ("status", "DONE"), ("initiated_by", "CHANCE")]
)
def test_a_value_that_makes_no_sense_cannot_be_stored(
    conn: Connection, id: int, column: str, value: str
) -> None:
    history.add(conn, full(id))
    with pytest.raises(Exception, match=f"refresh_history_{column}_check"):
        conn.execute(f"UPDATE millstream.refresh_history SET {column} = '{value}'")


def running(id: int) -> HistoryEntry:
    return HistoryEntry(id, "FULL", "INITIAL", "RUNNING", "SCHEDULER", AT)


@pytest.fixture
def transaction(another: Callable[[], Connection]) -> Iterator[tuple[Connection, int]]:
    """Another session with a transaction that goes on, and its number."""
    session = another()
    with session.transaction(force_rollback=True):
        yield session, session.execute("SELECT pg_current_xact_id()::text::int8").fetchall()[0][0]


def test_an_entry_running_is_no_orphan_while_its_transaction_goes_on(
    conn: Connection,
    id: int,
    transaction: tuple[Connection, int],
    another: Callable[[], Connection],
) -> None:
    session, number = transaction
    writer = another()
    history.exchange_running(writer, [], [running(id)], number)
    writer.close()
    assert history.fail_orphans(conn) == 0
    assert [entry.status for entry in history.recent(conn, id)] == ["RUNNING"]
    session.execute("ROLLBACK")
    assert wait_until(lambda: history.fail_orphans(conn)) == 1
    [entry] = history.recent(conn, id)
    assert (entry.status, entry.action, entry.reason, entry.started_at) == (
        "FAILED",
        "FULL",
        "MS410",
        AT,
    )
    assert entry.finished_at is not None
    assert entry.error is not None
    assert 'refreshed "t"' in entry.error["message"]
    assert history.fail_orphans(conn) == 0


def test_an_entry_running_whose_refresh_was_completed_goes(
    conn: Connection, id: int, transaction: tuple[Connection, int]
) -> None:
    session, number = transaction
    history.exchange_running(conn, [], [running(id)], number)
    history.add(session, full(id))
    session.execute("COMMIT")
    assert history.fail_orphans(conn) == 0
    assert [entry.status for entry in history.recent(conn, id)] == ["COMPLETED"]


def test_an_entry_running_of_another_cluster_is_an_orphan(conn: Connection, id: int) -> None:
    history.exchange_running(conn, [], [running(id)], 1 << 40)
    # The process id is in use, by another process.
    conn.execute(
        "UPDATE millstream.refresh_history SET backend_start = backend_start - interval '1 day'"
    )
    assert history.fail_orphans(conn) == 1


def test_entries_go_by_age_but_for_the_last_of_each_stream_table(
    conn: Connection, id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PRUNED_AT_ONCE", 10)
    other = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name="u", query="", canonical_query="", schedule="1s"
        ),
    ).id
    history.add_all(conn, [full(id)] * 35 + [full(other)])
    recent = replace(full(id), started_at=datetime.now(UTC) - timedelta(days=1), rows_read=1)
    history.add(conn, recent)
    assert history.prune(conn, timedelta(days=30)) == 35
    assert [entry.rows_read for entry in history.recent(conn, id)] == [1]
    assert len(history.recent(conn, other)) == 1
    assert history.prune(conn, timedelta(days=30)) == 0
