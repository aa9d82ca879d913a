"""Locks between processes of Millstream: who holds them, who cannot, and that they end with their
process.

The bug: every command took advisory locks with keys that anybody could guess and take first; then
it hung for ever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import millstream
from millstream.catalog import stream_tables
from millstream.catalog.installation import install
from millstream.catalog.processes.mutex import Mutex, Name
from millstream.errors import Busy, LockNotHad
from millstream.postgres.connection import Connection
from millstream.postgres.table_locks import Patience

Make = Callable[[], Mutex]


@pytest.fixture
def make(conn: Connection, database: str) -> Iterator[Make]:
    """Makes a Mutex as another process would have it; the catalog is installed."""
    install.install(conn)
    made: list[Mutex] = []

    def make_one() -> Mutex:
        made.append(Mutex(database))
        return made[-1]

    yield make_one
    for mutex in made:
        mutex.close()


def added(conn: Connection, name: str) -> int:
    return stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="s", name=name, query="", canonical_query="", schedule="1s"
        ),
    ).id


def session_of(conn: Connection) -> tuple[int, str | None, str | None]:
    """Of the session that holds locks: its process, transaction id and snapshot."""
    query = "SELECT pid, backend_xid::text, backend_xmin::text FROM pg_stat_activity WHERE application_name = %s"
    [found] = conn.execute(query, ("millstream locks",)).fetchall()
    pid, xid, xmin = found
    return pid, xid, xmin


# -- one at a time -------------------------------------------------------------------------------


def test_a_stream_table_is_worked_on_by_one_process_at_a_time(conn: Connection, make: Make) -> None:
    a, b = added(conn, "a"), added(conn, "b")
    first, second = make(), make()
    with first.stream_tables([a]) as free:
        assert free == {a}
        with second.stream_tables([a, b]) as rest:
            assert rest == {b}
        with pytest.raises(Busy), second.stream_table(a, "a"):
            pass
    with second.stream_tables([a, b]) as free:
        assert free == {a, b}


def test_blocks_are_nested_and_the_outermost_gives_back(conn: Connection, make: Make) -> None:
    a = added(conn, "a")
    first, second = make(), make()
    with first.stream_table(a, "a"):
        with first.stream_tables([a]) as free:
            assert free == {a}
        with second.stream_tables([a]) as free:
            assert not free, "the outer block still holds it"
    with second.stream_tables([a]) as free:
        assert free == {a}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_ends_by_an_error_gives_its_locks_back(
    conn: Connection, make: Make, error: type[BaseException]
) -> None:
    a = added(conn, "a")
    first, second = make(), make()
    with pytest.raises(error), first.stream_table(a, "a"):
        raise error
    with second.stream_tables([a]) as free:
        assert free == {a}


@pytest.mark.parametrize("name", ["leader", "transitions"])
def test_one_process_has_the_lock_of_that_name(conn: Connection, make: Make, name: Name) -> None:
    first, second = make(), make()
    with first.exclusive(name) as is_first:
        assert is_first
        assert first.is_held()
        assert first.holder(name) is None, "nobody else"
        with second.exclusive(name) as is_second:
            assert not is_second
            assert "millstream locks" in (second.holder(name) or "")
    with second.exclusive(name) as is_second:
        assert is_second


def test_locks_of_different_names_are_independent(make: Make) -> None:
    with make().exclusive("leader") as leads, make().exclusive("transitions") as moves:
        assert leads
        assert moves


def test_a_stream_table_being_created_is_locked_before_it_can_be_seen(
    conn: Connection, make: Make
) -> None:
    """Its row is not committed: nobody else can lock it, or insert it, and who does is told."""
    a = added(conn, "a")
    creator, other = make(), make()
    with creator.stream_table(a, "a"):
        pid, _, _ = session_of(conn)
        with pytest.raises(Busy) as busy, other.stream_table(a, "a"):
            pass
        assert f"process {pid} (millstream locks" in busy.value.detail
    assert conn.execute("SELECT stream_table_id FROM millstream.locks").fetchall() == [(a,)]


def test_the_holder_of_a_lock_is_reported_with_process_application_and_time(
    conn: Connection, make: Make
) -> None:
    a = added(conn, "a")
    first, second = make(), make()
    with first.stream_table(a, "a"):
        pass
    with first.stream_table(a, "a"):
        pid, _, _ = session_of(conn)
        with pytest.raises(Busy) as busy, second.stream_table(a, "a", Patience(seconds=0.3)):
            pass
    assert f"held by process {pid} (millstream locks, since 20" in busy.value.detail
    assert "Millstream waited 0.3 s" in busy.value.detail


def test_rows_of_stream_tables_that_are_gone_are_removed(conn: Connection, make: Make) -> None:
    a, b = added(conn, "a"), added(conn, "b")
    mutex = make()
    with mutex.stream_tables([a, b]):
        pass
    stream_tables.remove(conn, a)
    with make().stream_table(b, "b"):
        mutex.remove_rows()
    assert conn.execute("SELECT stream_table_id FROM millstream.locks").fetchall() == [(b,)]


# -- nothing waits for a lock that is held for long ----------------------------------------------


def test_a_leader_keeps_no_vacuum_waiting(conn: Connection, make: Make) -> None:
    conn.execute("CREATE TABLE t AS SELECT g FROM generate_series(1, 100) AS g")
    with make().exclusive("leader"):
        _, xid, xmin = session_of(conn)
        assert (xid, xmin) == (None, None)
        conn.execute("DELETE FROM t")
        conn.execute("VACUUM t")
        conn.execute("VACUUM (FREEZE) millstream.locks")
        assert conn.execute("SELECT pg_relation_size('t')").fetchall() == [(0,)], (
            "every row was removed"
        )


def test_a_lock_on_a_stream_table_holds_no_snapshot(conn: Connection, make: Make) -> None:
    a = added(conn, "a")
    mutex = make()
    with mutex.stream_table(a, "a"):
        _, xid, xmin = session_of(conn)
        assert xid is not None
        assert xmin is None


# -- the end of a process --------------------------------------------------------------------

CHILD = """
import sys, time
from millstream.catalog.processes.mutex import Mutex, Name
mutex = Mutex(sys.argv[1])
with mutex.exclusive("leader") as leads, mutex.stream_tables([int(sys.argv[2])]) as free:
    print(leads, free, flush=True)
    time.sleep(600)
"""


def test_locks_end_with_a_process_that_is_killed(
    conn: Connection, database: str, make: Make
) -> None:
    a = added(conn, "a")
    command = [sys.executable, "-c", CHILD, database, str(a)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().split() == ["True", f"{{{a}}}"]
    standby = make()
    with standby.exclusive("leader") as leads, standby.stream_tables([a]) as free:
        assert (leads, free) == (False, set())
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with standby.exclusive("leader", Patience(seconds=30)) as leads:
        assert leads
    with standby.stream_table(a, "a", Patience(seconds=30)):
        pass


def test_a_session_that_was_ended_has_lost_its_locks_and_is_opened_again(
    conn: Connection, make: Make
) -> None:
    a = added(conn, "a")
    first, second = make(), make()
    with first.stream_table(a, "a"):
        pid, _, _ = session_of(conn)
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        assert not first.is_held()
        with second.stream_table(a, "a"):
            pass
    with first.stream_table(a, "a"):
        assert first.is_held()


# -- strangers -----------------------------------------------------------------------------------


@pytest.fixture
def stranger(conn: Connection, database: str) -> Iterator[Connection]:
    """A role that may connect, and has been let into our schema by mistake or as a reader."""
    name = f"stranger_{conn.info.dbname}"
    conn.execute(f"CREATE ROLE {name} LOGIN")
    with psycopg.connect(database.replace("tester@", f"{name}@"), autocommit=True) as connected:
        yield connected
    conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def test_a_stranger_cannot_take_our_locks(
    conn: Connection, make: Make, stranger: Connection
) -> None:
    added(conn, "a")
    conn.execute(f"GRANT USAGE ON SCHEMA millstream TO {stranger.info.user}")
    query = (
        "SELECT oid::regclass::text FROM pg_class "
        "WHERE relkind IN ('r', 'v') AND relnamespace = 'millstream'::regnamespace"
    )
    relations = [name for (name,) in conn.execute(query)]
    assert {
        "millstream.locks",
        "millstream.lock_of_leader",
        "millstream.lock_of_transitions",
    } <= set(relations)
    modes = (
        "ACCESS SHARE",
        "ROW SHARE",
        "ROW EXCLUSIVE",
        "SHARE UPDATE EXCLUSIVE",
        "SHARE",
        "ACCESS EXCLUSIVE",
    )
    attempts = [f"LOCK TABLE {name} IN {mode} MODE" for name in relations for mode in modes]
    attempts += [
        "SELECT * FROM millstream.locks FOR UPDATE",
        "SELECT * FROM millstream.locks FOR KEY SHARE",
    ]
    for attempt in attempts:
        with pytest.raises(psycopg.errors.InsufficientPrivilege), stranger.transaction():
            stranger.execute(attempt)
    with make().exclusive("leader") as leads:
        assert leads


def test_a_stranger_who_has_every_advisory_lock_we_ever_used_stops_nothing(
    conn: Connection, database: str, stranger: Connection
) -> None:
    """The keys are those of the review: the install's, the hand-over's, and one for each stream
    table.
    """
    stranger.execute(
        "SELECT pg_advisory_lock(7883951835738042981), pg_advisory_lock(7521414230331254130)"
    )
    stranger.execute(
        "SELECT pg_advisory_lock(hashtext('millstream'), id) FROM generate_series(1, 10) AS id"
    )
    conn.execute("CREATE TABLE t (a int)")
    conn.execute("SET statement_timeout = '60s'")
    with millstream.connect(database) as ms:
        ms.create_stream_table("m", "SELECT a FROM t", initialize=False)
        ms.app.steps.looked_at = float("-inf")
        ms.alter_stream_table("m", status="SUSPENDED")
        assert ms.tick() == []
        ms.drop_stream_table("m")
        ms.uninstall()


def test_no_advisory_lock_is_taken_anywhere() -> None:
    """Anybody can take one: what waits for it waits for ever."""
    product = Path(millstream.__file__).parent
    texts = {
        path.name: path.read_text() for path in product.rglob("*") if path.suffix in (".py", ".sql")
    }
    assert [
        name for name, text in texts.items() if "pg_advisory" in text or "pg_try_advisory" in text
    ] == []


# -- installing ----------------------------------------------------------------------------------


def test_an_install_does_not_wait_for_ever_for_a_stranger(
    conn: Connection, stranger: Connection
) -> None:
    conn.execute(f"GRANT CREATE ON DATABASE {conn.info.dbname} TO {stranger.info.user}")
    stranger.execute("BEGIN; CREATE SCHEMA millstream")
    with pytest.raises(LockNotHad) as raised:
        install.install(conn, patience=Patience(lock_timeout=0.1, seconds=0.3))
    assert f"process {stranger.info.backend_pid} (" in raised.value.detail
    assert "since 20" in raised.value.detail
    stranger.execute("ROLLBACK")
    assert install.install(conn) == install.known()


def test_an_upgrade_does_not_wait_for_ever(
    conn: Connection, another: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    install.install(conn)
    later = install.Migration(
        install.known() + 1, "later", "ALTER TABLE millstream.settings ADD COLUMN note text"
    )
    extended = (*install.migrations(), later)
    monkeypatch.setattr(install, "migrations", lambda: extended)
    upgrading = another()
    upgrading.execute("BEGIN; LOCK TABLE millstream.migrations IN SHARE ROW EXCLUSIVE MODE")
    upgrading.execute("SELECT pg_current_xact_id()")
    started = time.monotonic()
    with pytest.raises(LockNotHad) as raised:
        install.install(conn, patience=Patience(lock_timeout=0.1, seconds=0.3))
    assert f"process {upgrading.info.backend_pid} (" in raised.value.detail
    assert time.monotonic() - started < 60
    upgrading.execute("ROLLBACK")
    assert install.install(conn) == later.version
