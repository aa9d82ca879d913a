"""DDL on sources: what can be followed is followed, and every stream table is what PostgreSQL says
of its query.
"""

from __future__ import annotations

import re

import psycopg
import pytest
from tests.service.totals_and_names import TABLES, TOTALS, actions, change, check, make

import millstream
from millstream import Millstream
from millstream.capture.transition import transitions
from millstream.capture.transition.context import TransitionMemory
from millstream.catalog import sources, stream_tables
from millstream.errors import SourceChanged
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff
from millstream.testing.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute(TABLES)
    return writer


@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "new process"])
def test_renamed_columns_and_tables_are_followed(
    ms: Millstream, writer: psycopg.Connection, database: str, restarted: bool
) -> None:
    """A renamed column of a source was an error until the stream table was created again."""
    make(ms)
    change(writer, 20)
    writer.execute(
        "ALTER TABLE t RENAME g TO v2; ALTER TABLE t RENAME v TO g; ALTER TABLE t RENAME id TO key"
    )
    if not restarted:
        change(writer, 21, id="key", g="v2")
    with millstream.connect(database, spark=ms.app.engine().spark) as other:
        one = other if restarted else ms
        assert set(actions(one).values()) <= {"REINITIALIZE", "DIFFERENTIAL"}
        check(one, g="v2", v="g", id="key")
        writer.execute(
            'CREATE SCHEMA aside; ALTER TABLE t RENAME TO "T"; ALTER TABLE "T" SET SCHEMA aside'
        )
        assert set(actions(one).values()) <= {"REINITIALIZE", "NO_DATA"}
        change(writer, 22, 'aside."T"', "key", "v2")
        assert set(actions(one).values()) == {"DIFFERENTIAL"}
        check(one, t='aside."T"', g="v2", v="g", id="key")
        assert [found for found in one.health() if not found.ok] == []


def test_a_query_that_does_not_hold_waits_and_a_dropped_source_leaves_nothing_behind(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """The buffer and the functions of a dropped source stayed, and its stream table was suspended."""
    ms.create_stream_table("totals", TOTALS, schedule="continuous")
    relid = writer.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    writer.execute("ALTER TABLE t DROP COLUMN v")
    for _ in range(5):
        end_backoff(ms.app.conn)
        assert ms.tick() == []
    table = ms.app.named("totals")
    assert table.status == "ERROR"
    # Older versions of PostgreSQL print the column with its table.
    assert re.search(r'Column ("v"|t\.v) does not exist', table.last_error or "")
    assert len(ms.history("totals")) == 2, "an error that stays the same is told once"
    writer.execute("ALTER TABLE t ADD COLUMN v bigint DEFAULT 3")
    stream_tables.try_errors_now(ms.app.conn)
    assert [report.action for report in ms.tick()] == ["REINITIALIZE"]
    assert (ms.app.named("totals").status, ms.verify("totals").ok) == ("ACTIVE", True)
    writer.execute("DROP TABLE t")
    ms.tick()
    assert 'Relation "public.t" does not exist' in (ms.app.named("totals").last_error or "")
    assert sources.every(ms.app.conn) == []
    left = (
        "SELECT proname FROM pg_proc WHERE proname LIKE %s UNION ALL "
        "SELECT relname FROM pg_class WHERE relname LIKE %s"
    )
    assert writer.execute(left, (f"capture%{relid}%", f"changes_{relid}%")).fetchall() == []
    writer.execute(TABLES.split(";")[0].encode())
    change(writer, 20)
    end_backoff(ms.app.conn)
    assert [report.action for report in ms.tick()] == ["REINITIALIZE"]
    assert (ms.app.named("totals").status, ms.verify("totals").ok) == ("ACTIVE", True)


def test_a_stream_table_that_its_owner_renames_is_refreshed_under_its_new_name(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """It was an error, for its readers too, until it was renamed back."""
    make(ms)
    writer.execute(
        "CREATE SCHEMA aside; ALTER TABLE totals RENAME TO sums; ALTER TABLE sums SET SCHEMA aside"
    )
    change(writer, 20)
    assert {report.name for report in ms.refresh_all()} == {"sums", "named", "above"}
    assert {table.qualified for table in stream_tables.every(ms.app.conn)} == {
        '"aside"."sums"',
        '"public"."named"',
        '"public"."above"',
    }
    oracle.check(ms.app.conn, TOTALS, "aside.sums")
    change(writer, 21)
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    oracle.check(ms.app.conn, TOTALS, "aside.sums")
    assert ms.verify("aside.sums").ok
    oracle.check(
        ms.app.conn, f"SELECT count(*) AS groups, sum(total) AS total FROM ({TOTALS}) AS q", "above"
    )
    ms.drop_stream_table("aside.sums", cascade=True)
    assert [table.name for table in ms.status()] == ["named"]


def test_a_source_that_is_captured_from_wal_is_followed_and_leaves_no_slot(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """It returns to WAL at once: after a failure it would rest, for longer than this test waits."""
    writer.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    ms.create_stream_table("totals", TOTALS)
    _move_to_wal(ms)
    for n, ddl in enumerate(
        (
            "ALTER TABLE t RENAME g TO h; ALTER TABLE t RENAME id TO key; ALTER TABLE t RENAME TO s",
            "ALTER TABLE s ALTER v TYPE bigint",
            "CREATE SCHEMA aside; ALTER TABLE s SET SCHEMA aside; ALTER TABLE aside.s RENAME TO t",
        )
    ):
        before, after = (
            ("t", "id", "g"),
            ("s", "key", "h"),
            ("s", "key", "h"),
            ("aside.t", "key", "h"),
        )[n : n + 2]
        change(writer, 20 + n, *before)
        writer.execute(ddl.encode())
        change(writer, 30 + n, *after)
        assert ms.refresh("totals").action in ("REINITIALIZE", "DIFFERENTIAL")
        t, _, g = after
        query = f"SELECT {g} AS g, sum(v) AS total, count(*) AS n FROM {t} GROUP BY {g}"
        oracle.check(ms.app.conn, query, "totals")
        change(writer, 40 + n, *after)
        assert ms.refresh("totals").action == "DIFFERENTIAL"
        oracle.check(ms.app.conn, query, "totals")
    (source,) = sources.every(ms.app.conn)
    assert source.reason is not None
    # One full stop at the end of what happened to the columns.
    assert re.fullmatch(
        r"Captured by triggers since its columns have changed: .*[^.]\.", source.reason
    )
    _move_to_wal(ms)
    writer.execute("DROP TABLE aside.t")
    with pytest.raises(SourceChanged):
        ms.refresh("totals")
    ms.app.steps = TransitionMemory()
    transitions.advance(ms.app)
    assert sources.every(ms.app.conn) == []
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    assert writer.execute(slots.encode()).fetchall() == []
    assert writer.execute("SELECT tablename FROM pg_publication_tables").fetchall() == []


def _move_to_wal(ms: Millstream) -> None:
    def advanced() -> bool:
        ms.app.steps = TransitionMemory()
        transitions.advance(ms.app)
        return [source.mode for source in sources.every(ms.app.conn)] == ["WAL"]

    assert wait_until(advanced, seconds=90)


def test_columns_of_a_partitioned_source_are_followed(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(
        "CREATE TABLE p (id int, v int, g text) PARTITION BY RANGE (id);"
        "CREATE TABLE p1 (g text, extra int, v int, id int); ALTER TABLE p1 DROP COLUMN extra;"
        "ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE p2 PARTITION OF p DEFAULT; INSERT INTO p SELECT i, i, i % 2 FROM generate_series(1, 20) AS i"
    )
    ms.create_stream_table("st", "SELECT g, sum(v) AS total FROM p GROUP BY g")
    for ddl, name in (
        ("ALTER TABLE p RENAME v TO w", "p"),
        ("ALTER TABLE p ALTER w TYPE bigint, ALTER g TYPE varchar(3)", "p"),
        ("ALTER TABLE p RENAME TO q; ALTER TABLE p1 RENAME TO q1", "q"),
    ):
        writer.execute(ddl.encode())
        writer.execute(f"UPDATE {name} SET w = w + 1 WHERE id % 3 = 1".encode())
        ms.refresh("st")
        query = f"SELECT g, sum(w) AS total FROM {name} GROUP BY g"
        oracle.check(ms.app.conn, query, "st")
        writer.execute(f"UPDATE {name} SET w = w + 1 WHERE id % 3 = 2".encode())
        assert ms.refresh("st").action == "DIFFERENTIAL"
        oracle.check(ms.app.conn, query, "st")
