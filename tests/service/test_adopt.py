"""Adopting a catalog that was restored or copied: every stream table comes back exact, or is listed and left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream.errors import NotAdopted, OtherDatabase
from millstream.observe.failpoint import ADOPT_FAILPOINTS
from millstream.store.connection import Connection, connect
from millstream.testing import oracle
from millstream.testing.restore import dump, restore
from millstream.testing.server import Server, embedded

pytestmark = pytest.mark.spark

TABLES = 60
QUERIES = {
    "s0": "SELECT id, g, v FROM t0",
    "s1": "SELECT g, count(*) AS n, sum(v) AS s FROM t1 GROUP BY g",
    "s2": "SELECT a.id, b.v FROM t2 AS a JOIN t3 AS b ON b.id = a.id",
    "s3": "SELECT g, v FROM t4",
    "s4": "SELECT g, n + 1 AS more FROM s1",
    "s5": "SELECT id, row_number() OVER (PARTITION BY g ORDER BY id) AS place FROM parted",
    **{f"s{number}": f"SELECT id, v FROM t{number}" for number in range(6, 24)},
}
# One of each kind, where a test needs no more.
FEW = {name: QUERIES[name] for name in ("s0", "s1", "s2", "s4", "s5")}

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


@pytest.fixture(scope="module")
def elsewhere(server: Server) -> Iterator[Server]:
    """Another cluster of the same version."""
    with embedded(bindir=server.bindir, settings={"fsync": "off"}) as running:
        with psycopg.connect(running.dsn, autocommit=True) as admin:
            admin.execute("CREATE ROLE tester SUPERUSER LOGIN")
        yield running


def make(conn: Connection, database: str, spark: SparkSession, queries: dict[str, str]) -> None:
    """60 tables of the user's, a partitioned one, and stream tables over some of them."""
    for number in range(TABLES):
        # Dropped columns: the attnums of a restored table are others.
        conn.execute(f"CREATE TABLE t{number} (gone int, id int PRIMARY KEY, g int, v numeric)")
        conn.execute(f"ALTER TABLE t{number} DROP COLUMN gone")
        conn.execute(f"INSERT INTO t{number} SELECT i, i % 3, i * {number} FROM generate_series(1, 20) AS i")
    conn.execute(
        """CREATE TABLE parted (id int, g int) PARTITION BY RANGE (id);
        CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
        CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (100);
        INSERT INTO parted SELECT i, i % 2 FROM generate_series(1, 20) AS i;"""
    )
    with millstream.connect(database, spark=spark) as ms:
        for name, query in queries.items():
            ms.create_stream_table(name, query, schedule="1h")


def write(conn: Connection, start: int) -> None:
    """Changes to every source."""
    for number in range(TABLES):
        conn.execute(f"INSERT INTO t{number} VALUES ({start}, 1, 7)")
        conn.execute(f"UPDATE t{number} SET v = v + 1 WHERE id = 3")
        conn.execute(f"DELETE FROM t{number} WHERE id = {start - 95}")
    conn.execute(f"INSERT INTO parted VALUES ({start - 20}, 1); DELETE FROM parted WHERE id = {start - 94}")


def users_rows(conn: Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {f"t{n}": conn.execute(f"SELECT * FROM t{n} ORDER BY id").fetchall() for n in range(TABLES)}


def check_exact(dsn: str, spark: SparkSession, queries: dict[str, str]) -> None:
    """Every stream table equals its query, now and after a differential refresh; nothing is left over."""
    with connect(dsn) as conn, millstream.connect(dsn, spark=spark) as ms:
        for name, query in queries.items():
            oracle.check(conn, query, name)
        write(conn, 110)
        before = users_rows(conn)
        for name, query in queries.items():
            assert ms.refresh(name).action in ("DIFFERENTIAL", "NO_DATA")
            oracle.check(conn, query, name)
        assert users_rows(conn) == before
        assert {kind: count for kind, count in conn.execute(LEFT) if count} == {}


def test_every_stream_table_of_a_restored_database_comes_back_exact(
    server: Server, elsewhere: Server, conn: Connection, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    make(conn, database, spark, QUERIES)
    dump(server, database, tmp_path / "dump")
    dsn = restore(elsewhere, tmp_path / "dump", "adopted", shift=11)
    with connect(dsn) as there, millstream.connect(dsn, spark=spark) as ms:
        write(there, 100)
        rows = users_rows(there)
        with pytest.raises(OtherDatabase):
            ms.tick()
        slot = there.execute("SELECT id FROM millstream.installation").fetchall()
        tried = ms.adopt(dry_run=True)
        assert len(tried.adopted) == len(QUERIES)
        assert not tried.unresolved
        with pytest.raises(OtherDatabase):
            ms.tick()
        found = ms.adopt()
        assert set(found.adopted) == set(tried.adopted)
        assert {report.action for report in found.reports} <= {"REINITIALIZE", "NO_DATA"}
        assert there.execute("SELECT id FROM millstream.installation").fetchall() != slot, "another slot's name"
        assert users_rows(there) == rows
        assert ms.adopt().adopted == (), "nothing is left to adopt"
    check_exact(dsn, spark, QUERIES)
    with millstream.connect(dsn, spark=spark) as ms:
        for name in reversed(QUERIES):
            ms.drop_stream_table(name)
        ms.uninstall()
    with connect(dsn) as there:
        assert len(users_rows(there)) == TABLES


def test_a_copy_of_the_database_is_adopted_and_the_original_goes_on(
    server: Server, conn: Connection, database: str, spark: SparkSession
) -> None:
    make(conn, database, spark, FEW)
    name = conn.info.dbname
    conn.close()
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}_copy TEMPLATE {name}")
        try:
            copy = database.replace(name, f"{name}_copy")
            with connect(copy) as there, millstream.connect(copy, spark=spark) as ms:
                write(there, 100)
                ms.adopt()
            check_exact(copy, spark, FEW)
        finally:
            admin.execute(f"DROP DATABASE {name}_copy WITH (FORCE)")
    with connect(database) as here, millstream.connect(database, spark=spark) as ms:
        write(here, 100)
        for each, query in FEW.items():
            assert ms.refresh(each).action == "DIFFERENTIAL"
            oracle.check(here, query, each)


UNRESOLVED = {
    "the table is gone": ("DROP TABLE s0", "there is no table"),
    "the source is gone": ("DROP TABLE t0 CASCADE", "there is no table"),
    "another table has the name": (
        "ALTER TABLE s0 RENAME TO other; CREATE TABLE s0 (id int, g int, v numeric); CREATE UNIQUE INDEX ON s0 (id)",
        "no mark",
    ),
    "a column has another type": ("ALTER TABLE s0 ALTER COLUMN v TYPE text", "the type"),
    "a column of the source is gone": ("ALTER TABLE t0 DROP COLUMN v", "v"),
}


@pytest.mark.parametrize("case", UNRESOLVED)
def test_what_cannot_be_resolved_is_listed_and_left_alone(
    server: Server, elsewhere: Server, conn: Connection, database: str, spark: SparkSession, tmp_path: Path, case: str
) -> None:
    queries = {name: QUERIES[name] for name in ("s0", "s1")}
    make(conn, database, spark, queries)
    dump(server, database, tmp_path / "dump")
    dsn = restore(elsewhere, tmp_path / "dump", "unresolved")
    statement, reason = UNRESOLVED[case]
    with connect(dsn) as there, millstream.connect(dsn, spark=spark) as ms:
        there.execute(statement)
        before = there.execute("SELECT oid, relname FROM pg_class ORDER BY 1").fetchall()
        with pytest.raises(NotAdopted, match="1 stream tables cannot be adopted") as refused:
            ms.adopt()
        assert reason in refused.value.detail
        assert there.execute("SELECT oid, relname FROM pg_class ORDER BY 1").fetchall() == before
        [(name, _)] = refused.value.unresolved
        found = ms.adopt(forget=[name])
        assert found.forgotten == (name,)
        assert [table.name for table in ms.status()] == ["s1"]
        oracle.check(there, queries["s1"], "s1")
        after = {name for _, name in there.execute("SELECT oid, relname FROM pg_class")}
        left_alone = {"s0", "other"} & {name for _, name in before}
        assert left_alone <= after


@pytest.mark.parametrize("point", ADOPT_FAILPOINTS)
def test_killed_at_any_step_adopting_again_ends_exact(
    server: Server, elsewhere: Server, conn: Connection, database: str, spark: SparkSession, tmp_path: Path, point: str
) -> None:
    make(conn, database, spark, FEW)
    dump(server, database, tmp_path / "dump")
    dsn = restore(elsewhere, tmp_path / "dump", "killed", shift=5)
    with connect(dsn) as there:
        write(there, 100)
        rows = users_rows(there)
    code = "import sys, millstream\nwith millstream.connect(sys.argv[1]) as ms: ms.adopt()"
    environment = {**os.environ, "MILLSTREAM_FAILPOINT": point}
    killed = subprocess.run([sys.executable, "-c", code, dsn], env=environment, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    with connect(dsn) as there, millstream.connect(dsn, spark=spark) as ms:
        assert users_rows(there) == rows
        ms.adopt()
    check_exact(dsn, spark, FEW)
