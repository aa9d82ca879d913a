"""A print is another one after each thing that our checks must notice, and the same after all that
they need not.
"""

from __future__ import annotations

import pytest

from millstream.capture.trigger import triggers
from millstream.catalog.definitions import digest_cache
from millstream.catalog.definitions.definition_digests import Digests
from millstream.catalog.installation import install
from millstream.postgres import relations
from millstream.postgres.connection import Connection

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (id + 1) STORED);
    CREATE TABLE p (id int, v int) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
    CREATE TABLE p2 (id int, v int);
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE FUNCTION more(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
    CREATE VIEW seen AS SELECT id FROM t;
    INSERT INTO t SELECT i, i FROM generate_series(1, 9) AS i
"""


@pytest.fixture
def stands(conn: Connection) -> Digests:
    install.install(conn)
    conn.execute(TABLES)
    found: Digests = {}
    for kind, name in (("storage", "t"), ("storage", "p"), ("storage", "p1"), ("view", "seen")):
        found[kind, conn.execute("SELECT %s::regclass::oid", (name,)).fetchall()[0][0]] = None  # type: ignore[index]  # a Kind by its text
    found["function", conn.execute("SELECT 'more'::regproc::oid").fetchall()[0][0]] = None
    found["type", conn.execute("SELECT 'mood'::regtype::oid").fetchall()[0][0]] = None
    relid = conn.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    triggers.install(conn, relations.table(conn, relid), ["id", "v"])
    return found


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t DISABLE TRIGGER ALL",
        "ALTER TABLE t RENAME COLUMN v TO x",
        "ALTER TABLE t DROP COLUMN w",
        "ALTER TABLE t ALTER COLUMN v TYPE int USING v * 2",
        "ALTER TABLE t ALTER COLUMN v SET NOT NULL",
        "ALTER TABLE t RENAME TO other",
        "ALTER TABLE t DROP CONSTRAINT t_pkey",
        "ALTER SCHEMA public RENAME TO private",
        "DROP TABLE t CASCADE",
        "TRUNCATE t",
        "VACUUM FULL t",
        "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
        "ALTER TABLE p DETACH PARTITION p1",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "CREATE OR REPLACE FUNCTION more(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 2'",
        "CREATE OR REPLACE VIEW seen AS SELECT id FROM t WHERE v > 0",
    ],
)
def test_what_must_be_noticed_changes_the_print(
    conn: Connection, stands: Digests, ddl: str
) -> None:
    before = digest_cache.version_stamps(conn, {1: stands})
    conn.execute(ddl.encode())
    assert digest_cache.version_stamps(conn, {1: stands}) != before


def test_a_buffer_that_is_gone_changes_the_print(conn: Connection, stands: Digests) -> None:
    before = digest_cache.version_stamps(conn, {1: stands})
    relid = conn.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    conn.execute(f"DROP TABLE millstream_changes.changes_{relid}".encode())
    assert digest_cache.version_stamps(conn, {1: stands}) != before


def test_rows_and_statistics_leave_the_print_alone(conn: Connection, stands: Digests) -> None:
    before = digest_cache.version_stamps(conn, {1: stands})
    conn.execute("UPDATE t SET v = v + 1; INSERT INTO p VALUES (1, 1)")
    conn.execute("VACUUM (ANALYZE) t, p")
    assert digest_cache.version_stamps(conn, {1: stands}) == before


def test_what_was_found_sound_holds_for_the_same_plan_only(
    conn: Connection, stands: Digests
) -> None:
    memory, found = digest_cache.DigestCache(), digest_cache.version_stamps(conn, {1: stands})[1]
    assert not memory.holds(1, stands, found)
    memory.keep(1, stands, found)
    assert memory.holds(1, stands, found)
    assert not memory.holds(1, {**stands, ("table", 1): "another"}, found)
    memory.forget()
    assert not memory.holds(1, stands, found)
