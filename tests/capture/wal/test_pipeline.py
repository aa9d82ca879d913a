"""The pipeline: what is committed is in the buffers, once, whatever is done to the tables."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.capture.wal.pipeline import Options
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log

CHUNKS = "in chunks"


def options(in_chunks: bool, budget: int = 64 << 20) -> Options:
    return Options(
        status_interval=0.5, idle_bytes=1, idle_seconds=0.2, in_chunks=in_chunks, budget=budget
    )


def test_inserts_updates_and_deletes_are_captured(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    t = log.capture("t")
    log.start()
    conn.execute("INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 5) AS g")
    conn.execute("UPDATE t SET v = 'changed' WHERE id < 3")
    conn.execute("DELETE FROM t WHERE id = 5")
    (taken,) = log.check(t)
    assert taken.images == 5 + 4 + 1
    began = time.monotonic()
    log.stop()
    assert time.monotonic() - began < 2


def test_only_what_is_captured_is_stored(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, v text, unused text)")
    t = log.capture("t", ["v"])
    log.start()
    conn.execute("INSERT INTO t VALUES (1, 'a', 'x'), (2, 'a', 'y')")
    conn.execute("UPDATE t SET unused = 'z'")
    assert log.check(t)[0].images == 2
    conn.execute("UPDATE t SET v = 'b' WHERE id = 1")
    assert log.check(t)[0].images == 2


def test_a_table_of_which_no_column_is_captured(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = log.capture("t", [])
    log.start()
    conn.execute("INSERT INTO t VALUES (1), (2), (3)")
    conn.execute("UPDATE t SET id = 4")
    conn.execute("DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t)")
    assert log.check(t)[0].images == 4


def test_several_sources_each_have_their_own(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE other (id int)")
    a, b = log.capture("a"), log.capture("b")
    log.start()
    with conn.transaction():
        for _ in range(3):
            conn.execute(
                "INSERT INTO a VALUES (1); INSERT INTO other VALUES (1); INSERT INTO b VALUES (2), (3)"
            )
    assert [taken.images for taken in log.check(a, b)] == [3, 6]


def test_truncations_are_marked(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int REFERENCES a)")
    a, b = log.capture("a"), log.capture("b")
    log.start()
    conn.execute("TRUNCATE a CASCADE")
    cuts = [each.cut()[0] for each in (a, b)]
    log.settle()
    assert [each.slice(cut).truncated for each, cut in zip((a, b), cuts, strict=True)] == [1, 1]


# -- partitions and children -----------------------------------------------------------------


def test_partitions_are_captured_under_their_root(conn: Connection, log: Log) -> None:
    conn.execute("""
        CREATE TABLE t (id int, region int, v text) PARTITION BY LIST (region);
        CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1);
        CREATE TABLE t2 (v text, gone int, region int, id int);
        ALTER TABLE t2 DROP gone;
        ALTER TABLE t ATTACH PARTITION t2 FOR VALUES IN (2);
    """)
    t = log.capture("t")
    log.start()
    conn.execute("INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
    conn.execute("INSERT INTO t2 (id, region, v) VALUES (3, 2, 'c')")
    conn.execute("UPDATE t SET region = 2 WHERE id = 1")
    assert log.check(t)[0].images == 5
    conn.execute("TRUNCATE t1")
    snapshot, _ = t.cut()
    log.settle()
    assert t.slice(snapshot).truncated == 1


def test_a_partition_that_comes_later_is_captured(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int, region int) PARTITION BY LIST (region)")
    t = log.capture("t")
    log.start()
    conn.execute(
        "CREATE TABLE t9 PARTITION OF t FOR VALUES IN (9); ALTER TABLE t9 REPLICA IDENTITY FULL"
    )
    conn.execute("INSERT INTO t VALUES (1, 9)")
    conn.execute("UPDATE t SET id = 2")
    assert log.check(t)[0].images == 3


def test_children_are_captured_under_their_parent(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int); CREATE TABLE child (more int) INHERITS (t)")
    t = log.capture("t")
    log.start()
    conn.execute(
        "INSERT INTO child VALUES (1, 10); INSERT INTO t VALUES (2); UPDATE t SET id = id + 5"
    )
    assert log.check(t)[0].images == 6


# -- the shape changes -------------------------------------------------------------------------


def test_rows_are_read_in_the_shape_they_were_written_in(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int, v text, w text)")
    t = log.capture("t", ["id", "w"])
    # All of it is history when the pipeline starts.
    conn.execute("INSERT INTO t VALUES (1, 'v', 'w')")
    conn.execute("ALTER TABLE t ADD extra int DEFAULT 7")
    with conn.transaction():
        conn.execute("INSERT INTO t VALUES (2, 'v', 'w', 1)")
        conn.execute("ALTER TABLE t DROP v")
        conn.execute("INSERT INTO t VALUES (3, 'w', 1)")
    conn.execute("UPDATE t SET w = 'x' WHERE id = 3")
    log.start()
    assert log.check(t)[0].images == 5


CHANGES = [
    "ALTER TABLE t RENAME v TO z",
    "ALTER TABLE t DROP v",
    "ALTER TABLE t ALTER v TYPE varchar",
    "ALTER TABLE t REPLICA IDENTITY DEFAULT",
]


@pytest.mark.parametrize("change", CHANGES)
def test_where_images_do_not_tell_the_change_it_is_marked(
    conn: Connection, log: Log, change: str
) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    t = log.capture("t")
    log.start()
    conn.execute("INSERT INTO t VALUES (1, 'a')")
    assert log.check(t)[0].images == 1
    conn.execute(change.encode())
    conn.execute("UPDATE t SET id = id + 1")
    log.settle()
    marks = conn.execute(
        f"SELECT count(*) FROM millstream_changes.changes_{t.source.relid} WHERE action = 'X'".encode()
    )
    assert marks.fetchall() == [(1,)]


def test_a_table_dropped_while_its_rows_are_on_their_way_stops_no_other(
    conn: Connection, log: Log
) -> None:
    conn.execute("CREATE TABLE a (id int); CREATE TABLE b (id int)")
    log.capture("a")
    b = log.capture("b")
    conn.execute("INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)")
    conn.execute("DROP TABLE a")
    log.start()
    assert log.check(b)[0].images == 1


# -- transactions ------------------------------------------------------------------------------


@pytest.mark.parametrize("in_chunks", [False, True], ids=["whole", CHUNKS])
def test_savepoints_aborts_and_two_phase_commits(
    conn: Connection, log: Log, in_chunks: bool
) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = log.capture("t")
    log.start(options(in_chunks))
    with conn.transaction():
        conn.execute("INSERT INTO t VALUES (1)")
        with conn.transaction(force_rollback=True):
            conn.execute("INSERT INTO t VALUES (2)")
        with conn.transaction():
            conn.execute("INSERT INTO t VALUES (3)")
    with conn.transaction(force_rollback=True):
        conn.execute("INSERT INTO t VALUES (4)")
    name = conn.info.dbname
    for number, end in enumerate(("COMMIT", "ROLLBACK")):
        conn.execute(
            f"BEGIN; INSERT INTO t VALUES ({5 + number}); PREPARE TRANSACTION '{name}{number}'".encode()
        )
        log.check(t)
        conn.execute(f"{end} PREPARED '{name}{number}'".encode())
    log.check(t)
    assert sorted(int(row[1] or 0) for row in t.content) == [1, 3, 5]


@pytest.mark.usefixtures("little_decoding_memory")
@pytest.mark.parametrize("in_chunks", [False, True], ids=["whole", CHUNKS])
def test_a_transaction_larger_than_memory_is_stored_in_parts(
    conn: Connection, log: Log, in_chunks: bool
) -> None:
    conn.execute("CREATE TABLE t (id int, v text); CREATE TABLE u (id int)")
    t, u = log.capture("t"), log.capture("u")
    log.start(options(in_chunks, budget=1 << 20))
    with conn.transaction():
        conn.execute("INSERT INTO t SELECT g, repeat('x', 50) FROM generate_series(1, 45000) AS g")
        with conn.transaction(force_rollback=True):
            conn.execute("INSERT INTO t SELECT g, 'no' FROM generate_series(1, 20000) AS g")
            conn.execute("INSERT INTO u SELECT generate_series(1, 20000)")
        conn.execute("INSERT INTO u VALUES (1)")
        with conn.transaction():
            conn.execute("UPDATE t SET v = 'y' WHERE id <= 1000")
    conn.execute("INSERT INTO u VALUES (2)")
    assert [taken.images for taken in log.check(t, u)] == [47000, 2]


def test_many_small_transactions_are_stored_in_batches(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = log.capture("t")
    conn.execute("SET synchronous_commit = off")
    for number in range(3000):
        conn.execute("INSERT INTO t VALUES (%s)", (number,))
    log.start()
    assert log.check(t)[0].images == 3000


def test_what_another_pipeline_left_is_taken_up(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = log.capture("t")
    for number in range(3):
        log.start(replace(options(False), linger=0.0))
        conn.execute("INSERT INTO t VALUES (%s)", (number,))
        log.check(t)
        conn.execute("INSERT INTO t VALUES (%s)", (number + 10,))
        log.stop()
    log.start()
    log.check(t)
    assert len(t.content) == 6
