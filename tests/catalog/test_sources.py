"""Sources in the catalog: what is captured of them, who reads them, and whether they are still as
recorded.
"""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest

from millstream.catalog import sources, stream_tables
from millstream.catalog.installation import install
from millstream.catalog.sources import CapturedColumn, Source
from millstream.catalog.stream_tables import Advance
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection

ORDERS = Source(
    42, "public", "Orders", "TRIGGER",
    (CapturedColumn(1, "id", 23, "integer"), CapturedColumn(3, "Größe", 1700, "numeric", 786438, 0, "digest")),
    (43, 44), "because",
)  # fmt: skip


@pytest.fixture(autouse=True)
def installed(conn: Connection) -> None:
    install.install(conn)


def reader(conn: Connection, name: str) -> int:
    table = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name=name, query="", canonical_query="", schedule="1s"
        ),
    )
    return table.id


def test_a_source_comes_back_as_it_was_recorded(conn: Connection) -> None:
    sources.put(conn, ORDERS)
    assert sources.get(conn, 42) == ORDERS
    assert sources.every(conn) == [ORDERS]
    assert sources.get(conn, 43) is None
    assert ORDERS.qualified == '"public"."Orders"'
    assert ORDERS.column("id") == ORDERS.columns[0]
    assert ORDERS.column("nonesuch") is None


def test_recording_again_replaces_and_reserving_does_not(conn: Connection) -> None:
    sources.reserve(conn, 42, "public", "Orders")
    found = sources.get(conn, 42)
    assert found is not None
    assert (found.columns, found.mode) == ((), "TRIGGER")
    sources.put(conn, ORDERS)
    sources.reserve(conn, 42, "public", "Orders")
    assert sources.get(conn, 42) == ORDERS


def test_columns_out_of_order_are_refused_at_birth() -> None:
    with pytest.raises(ValueError, match="not in order"):
        Source(42, "public", "t", "TRIGGER", ORDERS.columns[::-1])


def test_readers_their_columns_and_their_frontiers(conn: Connection) -> None:
    sources.put(conn, ORDERS)
    assert sources.consumers(conn, 42) == []
    assert sources.unread(conn) == [ORDERS]
    first, second = reader(conn, "first"), reader(conn, "second")
    sources.add_dependency(conn, first, 42, ["id", "id"])
    sources.add_dependency(conn, second, 42, ["Größe", "id"])
    stream_tables.advance(conn, [first], Advance("10:20:12", datetime.now(UTC)))
    assert sources.consumers(conn, 42) == [Snapshot(10, 20, (12,)), None]
    assert sources.needed_columns(conn, 42) == ["Größe", "id"]
    assert sources.read_by(conn, first) == [ORDERS]
    assert sources.unread(conn) == []
    sources.add_dependency(conn, second, 42, [])
    assert sources.needed_columns(conn, 42) == ["id"], "a reader's columns are replaced"


def test_a_source_that_is_read_cannot_be_forgotten(conn: Connection) -> None:
    sources.put(conn, ORDERS)
    table = reader(conn, "t")
    sources.add_dependency(conn, table, 42, ["id"])
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        sources.remove(conn, 42)
    stream_tables.remove(conn, table)
    sources.remove(conn, 42)
    assert sources.every(conn) == []


def test_a_reader_of_an_unknown_source_is_refused(conn: Connection) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        sources.add_dependency(conn, reader(conn, "t"), 42, ["id"])


DRIFT = {
    "nothing": ("SELECT 1", ""),
    "another column": ("ALTER TABLE t DROP COLUMN c; ALTER TABLE t ADD COLUMN d int", ""),
    "table dropped": ("DROP TABLE t", "The table was dropped."),
    "column dropped": ("ALTER TABLE t DROP COLUMN b", 'Column "b" was dropped.'),
    "column renamed": ("ALTER TABLE t RENAME b TO z", 'Column "b" was renamed to "z".'),
    "column retyped": ("ALTER TABLE t ALTER b TYPE varchar", 'Column "b" has another type'),
    "other modifier": ("ALTER TABLE t ALTER a TYPE numeric(9,4)", 'Column "a" has another type'),
    "other collation": (
        'ALTER TABLE t ALTER b TYPE text COLLATE "C"',
        'Column "b" has another type, collation',
    ),
    "child attached": ("CREATE TABLE u () INHERITS (t)", "attached or detached"),
}


@pytest.mark.parametrize(("ddl", "said"), DRIFT.values(), ids=DRIFT.keys())
def test_drift_describes_each_change(conn: Connection, ddl: str, said: str) -> None:
    conn.execute("CREATE TABLE t (a numeric(8,2), b text, c int)")
    relid = conn.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    columns = (
        CapturedColumn(1, "a", 1700, "numeric", 524294),
        CapturedColumn(2, "b", 25, "text", -1, 100),
    )
    sources.put(conn, Source(relid, "public", "t", "TRIGGER", columns))
    assert sources.drift(conn) == {}
    conn.execute(ddl)
    found = sources.drift(conn)
    assert set(found) == ({relid} if said else set())
    assert said in found.get(relid, "")
    assert sources.drift(conn, [1, relid]) == found
    assert sources.drift(conn, [1]) == {}


def test_a_new_expression_of_a_generated_column_is_drift(conn: Connection) -> None:
    if conn.info.server_version < 170000:
        pytest.skip("SET EXPRESSION came with PostgreSQL 17")
    conn.execute("CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a * 2) STORED)")
    relid = conn.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    digest = conn.execute(
        "SELECT md5(adbin::text) FROM pg_attrdef WHERE adrelid = %s", (relid,)
    ).fetchall()[0][0]
    column = CapturedColumn(2, "b", 23, "integer", generation=digest)
    sources.put(conn, Source(relid, "public", "t", "TRIGGER", (column,)))
    assert sources.drift(conn) == {}
    conn.execute("ALTER TABLE t ALTER b SET EXPRESSION AS (a * 3)")
    assert "expression" in sources.drift(conn)[relid]
