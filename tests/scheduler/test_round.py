"""The verb refresh: a refresh that was cancelled has not failed, and trouble that passes suspends
nothing.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

import millstream
from millstream.catalog.processes.mutex import Mutex
from millstream.client import Millstream
from millstream.errors import Busy, Cancelled, MillstreamError, ServerTrouble
from millstream.postgres.table_locks import Patience
from millstream.refresh import refresher
from millstream.refresh.reads import access_paths
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff

pytestmark = pytest.mark.spark

QUERY = "SELECT id, slow(v) AS v FROM t"
# Slow only while the table `slowness` has a row; an immutable function by its own word.
SLOW = """
CREATE TABLE t (id int PRIMARY KEY, v int);
INSERT INTO t VALUES (1, 1);
CREATE TABLE slowness (seconds float8);
CREATE FUNCTION slow(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN PERFORM pg_sleep(seconds) FROM public.slowness; RETURN v; END $$;
"""


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute(SLOW)
    ms.create_stream_table("st", QUERY, schedule="continuous")
    writer.execute("INSERT INTO slowness VALUES (60); INSERT INTO t VALUES (2, 2)")
    return writer


@contextmanager
def while_it_sleeps(
    database: str, act: Callable[[psycopg.Connection, int], object]
) -> Iterator[None]:
    """Do something as soon as a session of ours sleeps in the server."""
    asleep = (
        "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND application_name = 'millstream'"
        " AND datname = current_database()"
    )

    def wait() -> None:
        with psycopg.connect(database, autocommit=True) as conn:
            deadline = time.monotonic() + 30
            while not (found := conn.execute(asleep).fetchone()) and time.monotonic() < deadline:
                time.sleep(0.05)
            act(conn, found[0] if found else 0)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def cancel(conn: psycopg.Connection, pid: int) -> None:
    conn.execute("SELECT pg_cancel_backend(%s)", (pid,))


def interrupt(_conn: psycopg.Connection, _pid: int) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def succeeds(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("DELETE FROM slowness")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, "SELECT id, v FROM t", "public.st")


def test_a_refresh_that_an_administrator_cancels_is_cancelled_and_not_failed(
    ms: Millstream, writer: psycopg.Connection, database: str
) -> None:
    """It counted as an error of the stream table: three of them suspended it."""
    for _ in range(ms.app.settings.max_consecutive_errors + 1):
        end_backoff(ms.app.conn)
        with while_it_sleeps(database, cancel):
            assert ms.tick() == []
    with (
        while_it_sleeps(database, cancel),
        pytest.raises(Cancelled, match='refresh of "st" was cancelled'),
    ):
        ms.refresh("st")
    assert {entry.action for entry in ms.history("st")[:5]} == {"DIFFERENTIAL"}, (
        "what was attempted"
    )
    assert {(entry.status, entry.reason) for entry in ms.history("st")[:5]} == {
        ("CANCELLED", "MS407")
    }
    (told,) = ms.status()
    assert (told.status, told.consecutive_errors, told.transient_errors) == ("ACTIVE", 0, 0)
    assert [check.ok for check in ms.health() if check.name == "stream table public.st"] == [True]
    succeeds(ms, writer)


def test_a_refresh_at_work_is_seen_by_other_sessions_and_leaves_one_entry(
    ms: Millstream, writer: psycopg.Connection, database: str
) -> None:
    seen = list[tuple[object, ...]]()

    def look(conn: psycopg.Connection, _pid: int) -> None:
        columns = "action, reason, initiated_by, started_at"
        running = (
            f"SELECT {columns} FROM millstream.refresh_history WHERE status = 'RUNNING'".encode()
        )
        seen.extend(conn.execute(running).fetchall())
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        )

    with while_it_sleeps(database, look), pytest.raises(MillstreamError):
        ms.refresh("st")
    assert [row[:3] for row in seen] == [("DIFFERENTIAL", "CHANGED", "MANUAL")]
    succeeds(ms, writer)
    entries = ms.history("st")
    assert [entry.status for entry in entries] == ["COMPLETED", "FAILED", "COMPLETED"]
    assert (entries[1].action, entries[1].reason, entries[1].started_at) == (
        "DIFFERENTIAL",
        "MS410",
        seen[0][3],
    )


def test_a_scheduled_refresh_without_changes_is_counted_and_leaves_no_entry(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("DELETE FROM slowness")
    ms.refresh("st")
    before = ms.history("st")
    for _ in range(3):
        assert [report.action for report in ms.tick()] == ["NO_DATA"]
    assert ms.history("st") == before
    assert ms.app.named("st").no_data_refreshes == 3
    assert ms.status()[0].no_data_refreshes == 3


def test_a_refresh_that_ctrl_c_interrupts_is_cancelled_and_the_next_one_works(
    ms: Millstream, writer: psycopg.Connection, database: str
) -> None:
    # Spark's handler would cancel the jobs of other tests, too.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for act in (ms.tick, lambda: ms.refresh("st")):
            with pytest.raises(KeyboardInterrupt), while_it_sleeps(database, interrupt):
                act()
    finally:
        signal.signal(signal.SIGINT, former)
    assert {entry.status for entry in ms.history("st")} == {"CANCELLED", "COMPLETED"}
    cancelled = [entry for entry in ms.history("st") if entry.status == "CANCELLED"]
    assert {entry.action for entry in cancelled} == {"DIFFERENTIAL"}
    assert [entry.initiated_by for entry in cancelled] == ["MANUAL", "SCHEDULER"]
    assert ms.status()[0].consecutive_errors == 0
    succeeds(ms, writer)


def test_a_refresh_that_is_asked_for_waits_for_whoever_works_on_the_table(
    ms: Millstream, writer: psycopg.Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.execute("DELETE FROM slowness")
    with Mutex(database) as other:
        locked = other.stream_tables([ms.app.named("st").id])
        assert locked.__enter__()
        monkeypatch.setattr(refresher, "WAITING", Patience(seconds=0.3))
        with pytest.raises(Busy, match="in use by another session") as busy:
            ms.refresh("st")
        assert "waited 0.3 s" in busy.value.detail
        monkeypatch.setattr(refresher, "WAITING", Patience(seconds=90))
        soon = threading.Timer(0.5, other.close)
        soon.start()
        assert ms.refresh("st").action == "DIFFERENTIAL"
        soon.join()


# -- trouble that passes ---------------------------------------------------------------------

# An error of the server's own, in the midst of the MERGE, with whatever SQLSTATE the table
# `trouble` has.
FAILING = """
CREATE TABLE trouble (code text);
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
DECLARE found text := (SELECT code FROM trouble);
BEGIN
    IF found IS NOT NULL THEN RAISE EXCEPTION 'trouble' USING ERRCODE = found; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER fail AFTER INSERT OR UPDATE OR DELETE ON st FOR EACH STATEMENT EXECUTE FUNCTION fail();
"""
TRANSIENT = (
    "53100",
    "53200",
    "53300",
    "53400",
    "40001",
    "40P01",
    "55P03",
    "57P01",
    "57P03",
    "08006",
    "25P04",
    "58030",
)
PERMANENT = ("22012", "23505", "42P01", "P0001", "XX000")


def test_trouble_that_passes_is_counted_apart_and_never_suspends(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """Three deadlocks, or 0.6 s with a full disk, suspended a stream table until a person resumed
    it.
    """
    writer.execute("DELETE FROM slowness")
    ms.refresh("st")
    writer.execute(FAILING)
    count = 0
    for number, code in enumerate(TRANSIENT):
        writer.execute("DELETE FROM trouble")
        writer.execute("INSERT INTO trouble VALUES (%s)", (code,))
        writer.execute("UPDATE t SET v = v + 1 WHERE id = 1")
        end_backoff(ms.app.conn)
        assert ms.tick() == [], code
        with pytest.raises(MillstreamError) as caught:
            ms.refresh("st")
        count += 2
        (told,) = ms.status()
        assert caught.value.retryable, code
        assert (told.status, told.consecutive_errors, told.transient_errors) == (
            "ACTIVE",
            0,
            count,
        ), (number, code)
        assert caught.value.message in (told.last_transient_error or "")
    assert [check.ok for check in ms.health() if check.name == "stream table public.st"] == [False]
    for code in PERMANENT:
        writer.execute("UPDATE trouble SET code = %s", (code,))
        with pytest.raises(MillstreamError) as caught:
            ms.refresh("st")
        assert not caught.value.retryable, code
    assert ms.status()[0].consecutive_errors == len(PERMANENT)
    writer.execute("DELETE FROM trouble")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    (told,) = ms.status()
    assert (told.consecutive_errors, told.transient_errors, told.last_transient_error) == (
        0,
        0,
        None,
    )
    oracle.check(ms.app.conn, "SELECT id, v FROM t", "public.st")


def test_a_scan_for_which_the_server_has_no_connection_left_is_tried_again(
    ms: Millstream, database: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a task of Spark's was a failure like any other: three of them suspended the
    stream table.
    """
    role = f"limited_{database.rpartition('_')[2]}"
    with psycopg.connect(database, autocommit=True) as admin:
        name = admin.info.dbname
        ms.uninstall()
        admin.execute(
            f"CREATE ROLE {role} LOGIN; GRANT CREATE, TEMPORARY ON DATABASE {name} TO {role}".encode()
        )
        admin.execute(
            f"CREATE SCHEMA own AUTHORIZATION {role}; ALTER ROLE {role} SET search_path = own".encode()
        )
        monkeypatch.setattr(access_paths, "SMALL_PAGES", -1)
        try:
            with millstream.connect(make_conninfo(database, user=role), spark=spark) as theirs:
                with psycopg.connect(database, user=role, autocommit=True) as conn:
                    conn.execute(
                        "CREATE TABLE own.t (id int PRIMARY KEY); INSERT INTO own.t VALUES (1)"
                    )
                theirs.create_stream_table("st", "SELECT id FROM t", schedule="continuous")
                open_now = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
                held = admin.execute(open_now, (role,)).fetchall()[0][0]
                admin.execute(f"ALTER ROLE {role} CONNECTION LIMIT {held}".encode())
                for _ in range(3):
                    with pytest.raises(ServerTrouble, match="no free connection") as caught:
                        theirs.refresh("st", full=True)
                assert 'refresh of "st" failed' in caught.value.message
                assert "Traceback" not in caught.value.detail
                (told,) = theirs.status()
                assert (told.status, told.consecutive_errors, told.transient_errors) == (
                    "ACTIVE",
                    0,
                    3,
                )
                admin.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1".encode())
                assert theirs.refresh("st", full=True).action == "FULL"
                oracle.check(theirs.app.conn, "SELECT id FROM own.t", "own.st")
        finally:
            admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())
