"""What keeps a source on its triggers is told in words, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.bundled.server import embedded
from millstream.capture.wal import publication
from millstream.catalog.sources import Source
from millstream.postgres.connection import Connection, connect
from millstream.postgres.relations import partitions

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL"


def told(conn: Connection, *, has_slot: bool = False, may_set_identity: bool = False) -> str:
    """Why the table t cannot be captured from WAL."""
    oid = conn.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    source = Source(oid, "public", "t", "TRIGGER", (), partitions(conn, [oid])[oid])
    return publication.obstacle(conn, source, has_slot=has_slot, may_set_identity=may_set_identity)


def test_nothing_stands_in_the_way(conn: Connection) -> None:
    conn.execute(TABLE)
    assert told(conn) == ""


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (
            "CREATE TABLE t (id int PRIMARY KEY)",
            'ALTER TABLE "public"."t" REPLICA IDENTITY FULL; Or set',
        ),
        (
            "CREATE TABLE t (id int); ALTER TABLE t REPLICA IDENTITY NOTHING",
            "does not contain its old rows in full",
        ),
        ("CREATE UNLOGGED TABLE t (id int); ALTER TABLE t REPLICA IDENTITY FULL", "SET LOGGED"),
        (
            "CREATE TABLE t (id int) PARTITION BY LIST (id); CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
            'ALTER TABLE "public"."t1" REPLICA IDENTITY FULL',
        ),
        (
            "CREATE TABLE c (id int); CREATE TABLE t () INHERITS (c); ALTER TABLE t REPLICA IDENTITY FULL",
            "",
        ),
    ],
)
def test_a_table_that_is_not_fully_published(conn: Connection, table: str, why: str) -> None:
    conn.execute(table.encode())
    assert why in told(conn)
    assert bool(told(conn)) == bool(why)


def test_an_identity_that_may_be_set_is_no_obstacle(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY)")
    assert told(conn, may_set_identity=True) == ""


def test_generated_columns(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (id int, d int GENERATED ALWAYS AS (id * 2) STORED)")
    conn.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    is_told = conn.info.server_version >= 180000
    assert ('generated columns of "public"."t" ("d")' in told(conn)) != is_told
    if is_told:
        conn.execute("ALTER TABLE t ADD v int GENERATED ALWAYS AS (id * 3) VIRTUAL")
        assert '("v")' in told(conn)


@pytest.fixture
def limited(conn: Connection, database: str) -> Iterator[Connection]:
    """A role that owns nothing and may do nothing."""
    conn.execute("CREATE ROLE limited LOGIN")
    other = connect(database.replace("tester@", "limited@"))
    try:
        yield other
    finally:
        other.close()
        conn.execute("DROP OWNED BY limited CASCADE; DROP ROLE limited")


def test_what_a_role_may_not(conn: Connection, limited: Connection) -> None:
    conn.execute(TABLE)
    assert 'ALTER ROLE "limited" REPLICATION' in told(limited)
    conn.execute("ALTER ROLE limited REPLICATION")
    assert "may not create publications" in told(limited)
    conn.execute("GRANT CREATE ON DATABASE " + conn.info.dbname + " TO limited")
    assert "another role" in told(limited)
    conn.execute("ALTER TABLE t OWNER TO limited")
    assert told(limited) == ""


def test_what_a_server_does_not_offer() -> None:
    few = {"wal_level": "replica", "max_replication_slots": "1"}
    with embedded(settings=few) as server, connect(server.dsn) as conn:
        conn.execute(TABLE)
        assert "wal_level is replica" in told(conn)
    with embedded(settings={"max_replication_slots": "1"}) as server, connect(server.dsn) as conn:
        conn.execute(TABLE)
        conn.execute("SELECT pg_create_logical_replication_slot('another', 'pgoutput')")
        assert "max_replication_slots" in told(conn)
        assert told(conn, has_slot=True) == ""
