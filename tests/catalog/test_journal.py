"""What is at work is in the history, for other sessions to see."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from millstream.catalog import history, stream_tables
from millstream.catalog import journal as journals
from millstream.catalog.history import HistoryEntry
from millstream.catalog.installation import install
from millstream.catalog.journal import Journal
from millstream.errors import ServerDown
from millstream.postgres.connection import Connection
from millstream.testing.waiting import wait_until

AT = datetime(2024, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def id(conn: Connection) -> int:
    install.install(conn)
    return stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name="t", query="", canonical_query="", schedule="1s"
        ),
    ).id


@pytest.fixture
def journal(database: str) -> Iterator[Journal]:
    opened = Journal(database)
    yield opened
    opened.close()


def entry(id: int, started_at: datetime = AT) -> HistoryEntry:
    return HistoryEntry(id, "DIFFERENTIAL", "CHANGED", "RUNNING", "MANUAL", started_at)


def seen(conn: Connection, id: int) -> list[tuple[str, datetime]]:
    return [(one.status, one.started_at) for one in history.recent(conn, id)]


def test_a_refresh_at_work_is_seen_until_it_ends(
    conn: Connection, id: int, journal: Journal
) -> None:
    journal.begin([entry(id)], 100)
    assert seen(conn, id) == [("RUNNING", AT)]
    journal.end([id])
    assert seen(conn, id) == []
    assert journal.take(id) is None


def test_one_that_is_tried_again_has_one_entry_and_its_first_start(
    conn: Connection, id: int, journal: Journal
) -> None:
    journal.begin([entry(id)], 100)
    history.fail_orphans(conn)
    assert seen(conn, id) == [("RUNNING", AT)], "between two tries its transaction has ended"
    journal.begin([entry(id, AT + timedelta(seconds=5))], 101)
    assert seen(conn, id) == [("RUNNING", AT)]
    attempt = journal.take(id)
    assert attempt is not None
    assert (attempt.action, attempt.started_at) == ("DIFFERENTIAL", AT)
    journal.end([id])
    assert seen(conn, id) == [("RUNNING", AT)], "whoever has taken it replaces it"


def test_what_was_left_running_is_settled_by_the_next_process(
    conn: Connection, id: int, journal: Journal, database: str
) -> None:
    other = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name="u", query="", canonical_query="", schedule="1s"
        ),
    ).id
    journal.begin([entry(id)], 100)
    pid = conn.execute("SELECT backend_pid FROM millstream.refresh_history").fetchall()[0][0]
    journal.close()
    wait_until(
        lambda: not conn.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall()
    )
    after = Journal(database)
    after.begin([entry(other)], 101)
    assert seen(conn, id) == [("FAILED", AT)]
    assert seen(conn, other) == [("RUNNING", AT)]
    after.close()


def test_one_whose_session_was_lost_between_two_tries_has_one_entry_all_the_same(
    conn: Connection, id: int, journal: Journal
) -> None:
    journal.begin([entry(id)], 100)
    journal.close()
    assert wait_until(lambda: history.fail_orphans(conn)) == 1
    assert seen(conn, id) == [("FAILED", AT)]
    journal.begin([entry(id)], 101)
    assert seen(conn, id) == [("RUNNING", AT)]


def test_what_is_forgotten_is_settled_by_the_next_that_is_opened(
    conn: Connection, id: int, journal: Journal
) -> None:
    journal.begin([entry(id)], 100)
    journal.forget()
    assert journal.take(id) is None
    journal.end([id])
    assert wait_until(lambda: history.fail_orphans(conn)) == 1
    assert seen(conn, id) == [("FAILED", AT)]


def test_what_cannot_be_written_does_no_harm(conn: Connection, id: int, journal: Journal) -> None:
    with conn.transaction():
        conn.execute("LOCK TABLE millstream.refresh_history")
        journal.begin([entry(id)], 100)
    attempt = journal.take(id)
    assert attempt is not None
    assert attempt.id is None
    assert seen(conn, id) == []


def test_a_server_that_has_no_connection_left_is_not_asked_at_every_refresh(
    conn: Connection, id: int, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[str]()

    def refuse(dsn: str, application_name: str) -> Connection:
        tried.append(dsn)
        raise ServerDown.unreachable("", "sorry, too many clients already")

    with monkeypatch.context() as patch:
        patch.setattr(journals, "_opened", refuse)
        journal.begin([entry(id)], 100)
        journal.begin([entry(id)], 101)
        assert len(tried) == 1
    monkeypatch.setattr(journals, "TRY_AGAIN", 0.0)
    monkeypatch.setattr(journal, "_not_before", 0.0)
    journal.begin([entry(id)], 102)
    assert seen(conn, id) == [("RUNNING", AT)]
