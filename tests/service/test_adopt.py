"""Adopting a catalog that was restored or copied: every stream table comes back exact, or is listed
and left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.bundled.server import Server
from millstream.capture.transition import transitions
from millstream.capture.transition.context import TransitionMemory
from millstream.catalog import sources
from millstream.errors import NotAdopted, OtherDatabase
from millstream.postgres.connection import Connection, connect
from millstream.settings import Settings
from millstream.testing import oracle
from millstream.testing.restore import another_cluster, dump, restore

pytestmark = pytest.mark.spark

TABLES = 12
QUERIES = {
    "s0": "SELECT id, g, v FROM t0",
    "s1": "SELECT g, count(*) AS n, sum(v) AS s FROM t1 GROUP BY g",
    "s2": "SELECT a.id, b.v FROM t2 AS a JOIN t3 AS b ON b.id = a.id",
    "s3": "SELECT g, v FROM t4",
    "s4": "SELECT g, n + 1 AS more FROM s1",
    "s5": "SELECT id, row_number() OVER (PARTITION BY g ORDER BY id) AS place FROM parted",
}
# The sources of the others are captured from WAL: by a slot and a publication, which a dump does
# not take along.
BY_TRIGGER = ("s0", "s3")

LEFT = """
    SELECT 'buffer', count(*) - (SELECT count(*) FROM millstream.sources) FROM pg_class
    WHERE relnamespace = 'millstream_changes'::regnamespace AND relkind = 'r'
    UNION ALL SELECT 'trigger', count(*) FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
    WHERE NOT t.tgisinternal AND NOT EXISTS (
        SELECT FROM millstream.sources AS s WHERE split_part(p.proname, '_', 2) = s.relid::text
    ) AND p.proname LIKE 'capture%'
    UNION ALL SELECT 'function', count(*) FROM pg_proc AS p
    WHERE p.pronamespace = 'millstream_changes'::regnamespace AND p.proname LIKE 'capture%' AND NOT EXISTS (
        SELECT FROM millstream.sources AS s WHERE split_part(p.proname, '_', 2) = s.relid::text
    )
    UNION ALL SELECT 'publication', count(*) FROM pg_publication
    UNION ALL SELECT 'slot', count(*) FROM millstream.slots
"""


Copy = Callable[[], str]
_numbers = count(1)


@pytest.fixture(scope="module")
def elsewhere(server: Server) -> Iterator[Server]:
    """Another cluster of the same version."""
    with another_cluster(server) as running:
        yield running


@pytest.fixture(scope="module")
def original(server: Server, spark: SparkSession) -> Iterator[str]:
    """A database with tables of the user's, and stream tables over some of them."""
    name = "adopt_original"
    dsn = server.dsn_for("tester", name)
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        with connect(dsn) as conn, opened(dsn, spark) as ms:
            make(conn)
            for table, query in QUERIES.items():
                mode = "trigger" if table in BY_TRIGGER else None
                ms.create_stream_table(table, query, schedule="1h", cdc_mode=mode)
            move_to_wal(ms)
        yield dsn
        with opened(dsn, spark) as ms:
            ms.uninstall()
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def restored(
    server: Server, elsewhere: Server, original: str, tmp_path_factory: pytest.TempPathFactory
) -> Copy:
    """Makes copies of a database that was restored in the other cluster, which are as foreign as it
    is.
    """
    file = tmp_path_factory.mktemp("dump") / "dump"
    dump(server, original, file)
    template = restore(elsewhere, file, "restored", shift=11)

    def copy() -> str:
        name = f"restored_{next(_numbers)}"
        with psycopg.connect(elsewhere.dsn, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE restored")
        return template.removesuffix("restored") + name

    return copy


@contextmanager
def opened(dsn: str, spark: SparkSession) -> Iterator[Millstream]:
    with millstream.connect(dsn, spark=spark, settings=Settings(auto_replica_identity=True)) as ms:
        yield ms


def make(conn: Connection) -> None:
    for number in range(TABLES):
        # Dropped columns: the attnums of a restored table are others.
        conn.execute(f"CREATE TABLE t{number} (gone int, id int PRIMARY KEY, g int, v numeric)")
        conn.execute(f"ALTER TABLE t{number} DROP COLUMN gone")
        conn.execute(
            f"INSERT INTO t{number} SELECT i, i % 3, i * {number} FROM generate_series(1, 20) AS i"
        )
    conn.execute(
        """CREATE TABLE parted (id int, g int) PARTITION BY RANGE (id);
        CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
        CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (100);
        INSERT INTO parted SELECT i, i % 2 FROM generate_series(1, 20) AS i;"""
    )


def move_to_wal(ms: Millstream) -> None:
    """Move every table whose readers allow it."""
    deadline = time.monotonic() + 60
    while {source.name for source in sources.every(ms.app.conn) if source.mode == "WAL"} < {
        "parted",
        "t1",
        "t2",
        "t3",
    }:
        assert time.monotonic() < deadline, sources.every(ms.app.conn)
        ms.app.steps = TransitionMemory()
        transitions.advance(ms.app)


def write(conn: Connection, start: int) -> None:
    """Changes to every source."""
    for number in range(TABLES):
        conn.execute(f"INSERT INTO t{number} VALUES ({start}, 1, 7)")
        conn.execute(f"UPDATE t{number} SET v = v + 1 WHERE id = 3")
        conn.execute(f"DELETE FROM t{number} WHERE id = {start - 95}")
    conn.execute(
        f"INSERT INTO parted VALUES ({start - 20}, 1); DELETE FROM parted WHERE id = {start - 94}"
    )


def users_rows(conn: Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {
        f"t{n}": conn.execute(f"SELECT * FROM t{n} ORDER BY id").fetchall() for n in range(TABLES)
    }


def check_exact(dsn: str, spark: SparkSession) -> None:
    """Every stream table equals its query, now and after a differential refresh; nothing is left
    over.
    """
    with connect(dsn) as conn, opened(dsn, spark) as ms:
        for name, query in QUERIES.items():
            oracle.check(conn, query, name)
        write(conn, 110)
        before = users_rows(conn)
        for name, query in QUERIES.items():
            assert ms.refresh(name).action in ("DIFFERENTIAL", "NO_DATA")
            oracle.check(conn, query, name)
        assert users_rows(conn) == before
        assert {kind: count for kind, count in conn.execute(LEFT) if count} == {}


def test_every_stream_table_of_a_restored_database_comes_back_exact(
    restored: Copy, spark: SparkSession
) -> None:
    dsn = restored()
    with connect(dsn) as there, opened(dsn, spark) as ms:
        write(there, 100)
        rows = users_rows(there)
        with pytest.raises(OtherDatabase):
            ms.tick()
        before = secrets(there)
        tried = ms.adopt(dry_run=True)
        assert len(tried.adopted) == len(QUERIES)
        assert not tried.unresolved
        with pytest.raises(OtherDatabase):
            ms.tick()
        found = ms.adopt()
        assert set(found.adopted) == set(tried.adopted)
        assert {report.action for report in found.reports} <= {"REINITIALIZE", "NO_DATA"}
        assert not before & secrets(there), (
            "another name for slot and publication, another secret of the guards"
        )
        assert users_rows(there) == rows
        assert ms.adopt().adopted == (), "nothing is left to adopt"
    check_exact(dsn, spark)
    with connect(dsn) as there, opened(dsn, spark) as ms:
        move_to_wal(ms)
        write(there, 111)
        for name, query in QUERIES.items():
            assert ms.refresh(name).action in ("DIFFERENTIAL", "NO_DATA")
            oracle.check(there, query, name)
        rows = users_rows(there)
        ms.drop_stream_table("s4")
        ms.uninstall()
        assert users_rows(there) == rows
        query = "SELECT relreplident FROM pg_class WHERE relname ~ '^(t[0-9]|parted)' AND relkind IN ('r', 'p')"
        assert set(there.execute(query)) == {("d",)}, (
            "set back by name: we had set it in the other database"
        )


def secrets(conn: Connection) -> set[str]:
    query = "SELECT id::text FROM millstream.installation UNION ALL SELECT secret::text FROM millstream.guard_secret"
    return {secret for (secret,) in conn.execute(query)}


def test_a_copy_of_the_database_is_adopted_and_the_original_goes_on(
    server: Server, original: str, spark: SparkSession
) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        wait_until_unused(admin, "adopt_original")
        admin.execute("CREATE DATABASE adopt_copy TEMPLATE adopt_original")
        try:
            copy = original.replace("adopt_original", "adopt_copy")
            with connect(copy) as there, opened(copy, spark) as ms:
                write(there, 100)
                ms.adopt()
            check_exact(copy, spark)
        finally:
            admin.execute("DROP DATABASE adopt_copy WITH (FORCE)")
    with connect(original) as here, opened(original, spark) as ms:
        write(here, 100)
        for each, query in QUERIES.items():
            assert ms.refresh(each).action in ("DIFFERENTIAL", "NO_DATA")
            oracle.check(here, query, each)


def wait_until_unused(admin: psycopg.Connection, database: str) -> None:
    """The server finds out a moment later that a client has gone."""
    deadline = time.monotonic() + 10
    while admin.execute("SELECT FROM pg_stat_activity WHERE datname = %s", (database,)).fetchall():
        assert time.monotonic() < deadline
        time.sleep(0.02)


UNRESOLVED = {
    "the table is gone": ("DROP TABLE s0", "there is no table"),
    "the source is gone": ("DROP TABLE t0 CASCADE", "there is no table"),
    "another table has the name": (
        "ALTER TABLE s0 RENAME TO other; CREATE TABLE s0 (id int, g int, v numeric); CREATE UNIQUE INDEX ON s0 (id)",
        "not have Millstream's comment",
    ),
    "a column has another type": (
        "ALTER TABLE s0 ALTER COLUMN v TYPE text",
        "has type text, not numeric",
    ),
    "a column of the source is gone": ("ALTER TABLE t0 DROP COLUMN v", "v"),
}


@pytest.mark.parametrize("case", UNRESOLVED)
def test_what_cannot_be_resolved_is_listed_and_left_alone(
    restored: Copy, spark: SparkSession, case: str
) -> None:
    dsn = restored()
    statement, reason = UNRESOLVED[case]
    with connect(dsn) as there, opened(dsn, spark) as ms:
        there.execute(statement)
        before = there.execute("SELECT oid, relname FROM pg_class ORDER BY 1").fetchall()
        with pytest.raises(NotAdopted, match="1 stream tables cannot be adopted") as refused:
            ms.adopt()
        assert reason in refused.value.detail
        assert there.execute("SELECT oid, relname FROM pg_class ORDER BY 1").fetchall() == before
        [(name, _)] = refused.value.unresolved
        found = ms.adopt(forget=[name])
        assert found.forgotten == (name,)
        assert {table.name for table in ms.status()} == set(QUERIES) - {"s0"}
        oracle.check(there, QUERIES["s1"], "s1")
        after = {name for _, name in there.execute("SELECT oid, relname FROM pg_class")}
        left_alone = {"s0", "other"} & {name for _, name in before}
        assert left_alone <= after
        for each in left_alone:
            there.execute(f"DELETE FROM {each}")
