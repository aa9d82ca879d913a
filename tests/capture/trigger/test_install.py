"""Setting capture up: gently, exactly at one moment, and for more than one reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from millstream.capture.trigger import triggers
from millstream.catalog import sources
from millstream.catalog.installation import install
from millstream.catalog.sources import Source
from millstream.errors import BadSource, LockNotHad, SourceChanged
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.table_locks import Patience

if TYPE_CHECKING:
    from tests.capture.conftest import Watch

HASTY = Patience(lock_timeout=0.05, seconds=0.5)


@pytest.fixture
def t(conn: Connection) -> int:
    """A table of three columns: its oid."""
    install.install(conn)
    conn.execute("CREATE TABLE t (a int, b text, c numeric)")
    oid: int = conn.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    return oid


def capture(conn: Connection, oid: int, columns: list[str], patience: Patience = HASTY) -> Source:
    return triggers.install(conn, relations.table(conn, oid), columns, patience=patience)


def names(source: Source) -> list[str]:
    return [column.name for column in source.columns]


def test_what_is_captured_is_recorded(conn: Connection, t: int) -> None:
    source = capture(conn, t, ["c", "a"])
    assert sources.get(conn, t) == source
    assert (source.schema, source.name, source.mode, names(source)) == (
        "public",
        "t",
        "TRIGGER",
        ["a", "c"],
    )


def test_a_second_reader_adds_its_columns(conn: Connection, watch: Watch, t: int) -> None:
    first = watch("t", ["a"])
    conn.execute("INSERT INTO t VALUES (1, 'one', 1)")
    assert names(capture(conn, t, ["b"])) == ["a", "b"]
    conn.execute("INSERT INTO t VALUES (2, 'two', 2)")
    assert first.check().came == {("", "1"): 1, ("", "2"): 1}
    query = f"SELECT c1, c2 FROM millstream_changes.changes_{t} ORDER BY id"
    assert conn.execute(query).fetchall() == [(1, None), (2, "two")], (
        "what came before has no image of it"
    )


def test_columns_that_others_rely_on_are_not_lost(conn: Connection, t: int) -> None:
    capture(conn, t, ["a", "b"])
    assert names(capture(conn, t, [])) == ["a", "b"]


def test_setting_up_again_leaves_one_set_of_triggers(conn: Connection, t: int) -> None:
    for _ in range(3):
        capture(conn, t, ["a"])
    assert conn.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = %s", (t,)).fetchall() == [
        (4,)
    ]
    conn.execute("INSERT INTO t VALUES (1)")
    assert conn.execute(f"SELECT count(*) FROM millstream_changes.changes_{t}").fetchall() == [(1,)]


def test_an_unknown_column_is_refused_and_nothing_is_left(conn: Connection, t: int) -> None:
    with pytest.raises(SourceChanged, match="has changed") as raised:
        capture(conn, t, ["nonesuch"])
    assert "nonesuch" in raised.value.detail
    assert conn.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = %s", (t,)).fetchall() == [
        (0,)
    ]


def test_a_table_that_was_dropped_meanwhile_is_refused(conn: Connection, t: int) -> None:
    table = relations.table(conn, t)
    conn.execute("DROP TABLE t; CREATE TABLE t (a int)")
    with pytest.raises(SourceChanged, match="has changed"):
        triggers.install(conn, table, ["a"])


def test_the_callers_settings_are_left_as_they_were(conn: Connection, t: int) -> None:
    conn.execute("SET search_path = public, pg_catalog; SET lock_timeout = '7s'")
    with conn.transaction():
        capture(conn, t, ["a"])
        query = "SELECT current_setting('search_path'), current_setting('lock_timeout')"
        assert conn.execute(query).fetchall() == [("public, pg_catalog", "7s")]
    assert conn.execute(query).fetchall() == [("public, pg_catalog", "7s")]


def test_a_table_that_was_renamed_meanwhile_is_refused(conn: Connection, t: int) -> None:
    table = relations.table(conn, t)
    conn.execute("ALTER TABLE t RENAME TO u")
    with pytest.raises(SourceChanged, match="has changed"):
        triggers.install(conn, table, ["a"])
    conn.execute("CREATE TABLE t (a int)")
    with pytest.raises(SourceChanged, match="has changed"):
        triggers.install(conn, table, ["a"])


def test_more_columns_than_a_buffer_can_have_are_refused(conn: Connection, t: int) -> None:
    conn.execute(f"CREATE TABLE wide ({', '.join(f'c{n} boolean' for n in range(1600))})")
    oid = conn.execute("SELECT 'wide'::regclass::oid").fetchall()[0][0]
    with pytest.raises(BadSource, match="wide"):
        capture(conn, oid, [f"c{n}" for n in range(1600)])
    capture(conn, oid, [f"c{n}" for n in range(1500)])


def test_a_server_that_defaults_to_repeatable_read_changes_nothing(
    conn: Connection, another: Callable[[], Connection], t: int
) -> None:
    """What is looked at under the lock must be newer than the lock."""
    capture(conn, t, ["a"])
    conn.execute("SET default_transaction_isolation = 'repeatable read'")
    writer = another()
    writer.execute("BEGIN")
    writer.execute("ALTER TABLE t ALTER COLUMN a TYPE bigint")
    waiting = threading.Thread(
        target=capture, args=(conn, t, ["b"], Patience(lock_timeout=5, seconds=20))
    )
    waiting.start()
    while writer.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchall() == [(0,)]:
        time.sleep(0.01)
    writer.execute("COMMIT")
    waiting.join()
    source = sources.get(conn, t)
    assert source is not None
    assert [column.type_name for column in source.columns] == ["bigint", "text"]


def test_what_is_right_already_is_left_alone(conn: Connection, t: int) -> None:
    """Writers wait while we work; on a table of a thousand partitions that must not be long."""
    conn.execute("CREATE TABLE p (a int, b int) PARTITION BY RANGE (a)")
    for number in range(5):
        conn.execute(
            f"CREATE TABLE p{number} PARTITION OF p FOR VALUES FROM ({number}) TO ({number + 1})"
        )
    oid = conn.execute("SELECT 'p'::regclass::oid").fetchall()[0][0]
    versions = "SELECT oid, xmin::text FROM pg_trigger UNION SELECT oid, xmin::text FROM pg_proc ORDER BY 1"
    capture(conn, oid, ["a"])
    before: dict[int, str] = dict(conn.execute(versions).fetchall())
    conn.execute("CREATE TABLE p5 PARTITION OF p FOR VALUES FROM (5) TO (6)")
    capture(conn, oid, ["a"])
    after: dict[int, str] = dict(conn.execute(versions).fetchall())
    assert {key: after[key] for key in before} == before
    assert len(after) == len(before) + 4 + 1
    conn.execute(f"ALTER FUNCTION millstream_changes.capture_{oid}() SECURITY INVOKER")
    capture(conn, oid, ["a"])
    assert conn.execute(
        f"SELECT prosecdef FROM pg_proc WHERE proname = 'capture_{oid}'"
    ).fetchall() == [(True,)]


# -- locks -----------------------------------------------------------------------------------


def test_a_long_writer_is_waited_for_without_holding_up_others(
    conn: Connection, another: Callable[[], Connection], t: int
) -> None:
    long, short = another(), another()
    long.execute("BEGIN")
    long.execute("INSERT INTO t VALUES (1)")
    waiting = threading.Thread(
        target=capture, args=(conn, t, ["a"], Patience(lock_timeout=0.05, seconds=20))
    )
    waiting.start()
    slowest = 0.0
    for _ in range(20):
        started = time.monotonic()
        short.execute("INSERT INTO t VALUES (2)")
        slowest = max(slowest, time.monotonic() - started)
        time.sleep(0.02)
    long.execute("COMMIT")
    waiting.join()
    assert slowest < 1.0, "a writer waits at most for one attempt"
    short.execute("INSERT INTO t VALUES (3)")
    assert conn.execute(f"SELECT c1 FROM millstream_changes.changes_{t}").fetchall() == [(3,)]


def test_a_lock_that_is_not_to_be_had_is_an_error_that_says_who(
    conn: Connection, another: Callable[[], Connection], t: int
) -> None:
    long = another()
    long.execute("BEGIN")
    long.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(LockNotHad) as raised:
        capture(conn, t, ["a"])
    assert raised.value.retryable
    assert f"process {long.info.backend_pid}" in raised.value.detail
    long.execute("ROLLBACK")
    capture(conn, t, ["a"])


def test_a_prepared_transaction_in_the_way_is_named(
    conn: Connection, another: Callable[[], Connection], t: int
) -> None:
    writer = another()
    writer.execute("BEGIN")
    writer.execute("INSERT INTO t VALUES (1)")
    writer.execute("PREPARE TRANSACTION 'in the way'")
    with pytest.raises(LockNotHad) as raised:
        capture(conn, t, ["a"])
    assert "prepared transaction 'in the way'" in raised.value.detail
    writer.execute("COMMIT PREPARED 'in the way'")
    capture(conn, t, ["a"])


def test_readers_are_not_held_up_at_all(
    conn: Connection, another: Callable[[], Connection], t: int
) -> None:
    reader = another()
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM t")
    capture(conn, t, ["a"])
    reader.execute("COMMIT")


def test_two_that_set_up_at_once_both_get_their_columns(
    another: Callable[[], Connection], t: int
) -> None:
    patience = Patience(lock_timeout=0.05, seconds=20)
    tasks = [
        threading.Thread(target=capture, args=(another(), t, [column], patience))
        for column in "abc" * 3
    ]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    source = sources.get(another(), t)
    assert source is not None
    assert names(source) == ["a", "b", "c"]
    assert not triggers.missing(another(), t)


def test_capture_starts_at_one_moment_under_concurrent_writers(
    another: Callable[[], Connection], watch: Watch, t: int
) -> None:
    """Whatever commits before the set-up is in the first content, whatever comes after is in the
    buffer.
    """
    stop = threading.Event()
    writers = [threading.Thread(target=_write, args=(another(), stop)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for columns in (["a"], ["b"], ["c"]):
        watched = watch("t", columns)
        for _ in range(5):
            watched.check()
    stop.set()
    for writer in writers:
        writer.join()
    watched.check()


def _write(writer: Connection, stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        with writer.transaction(force_rollback=number % 7 == 0):
            writer.execute("INSERT INTO t VALUES (%s, 'x', 1)", (number,))
            writer.execute("UPDATE t SET c = c + 1, b = b || 'y' WHERE a = %s", (number - 1,))
            writer.execute("DELETE FROM t WHERE a = %s", (number - 10,))


def test_removing_a_source_that_is_read_again_is_declined(conn: Connection, t: int) -> None:
    from millstream.catalog import stream_tables

    capture(conn, t, ["a"])
    table = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public",
            name="s",
            query="SELECT a FROM t",
            canonical_query="",
            schedule="1s",
        ),
    )
    sources.add_dependency(conn, table.id, t, ["a"])
    assert not triggers.remove(conn, t)
    assert not triggers.missing(conn, t)
    stream_tables.remove(conn, table.id)
    assert triggers.remove(conn, t)
