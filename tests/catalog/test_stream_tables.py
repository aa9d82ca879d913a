"""Stream tables in the catalog: found by the names users write, moved to frontiers, removed with
all that is theirs.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from millstream.catalog import blocks, history, sources, stream_tables
from millstream.catalog.history import HistoryEntry
from millstream.catalog.installation import install
from millstream.catalog.sources import Source
from millstream.catalog.stream_tables import Advance, StreamTable
from millstream.errors import NameTaken, NoSuchStreamTable
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection

AT = datetime(2024, 6, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def installed(conn: Connection) -> None:
    install.install(conn)


def add(
    conn: Connection, name: str, schema: str = "public", relid: int | None = None
) -> StreamTable:
    return stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name=schema,
            name=name,
            query="SELECT 1",
            canonical_query=" SELECT 1;",
            schedule="1s",
            relid=relid,
        ),
    )


def test_a_new_one_is_initializing_and_has_no_frontier(conn: Connection) -> None:
    table = add(conn, "totals")
    assert (table.status, table.refresh_mode, table.frontier, table.relid) == (
        "INITIALIZING",
        "AUTO",
        None,
        None,
    )
    assert (table.consecutive_errors, table.last_error, table.created_by) == (0, None, "tester")
    assert (table.query, table.canonical_query, table.schedule) == ("SELECT 1", " SELECT 1;", "1s")
    assert stream_tables.get(conn, table.id) == table
    assert table.qualified == str(table) == '"public"."totals"'


def test_a_name_is_taken_once(conn: Connection) -> None:
    add(conn, "totals")
    add(conn, "totals", schema="other")
    with conn.transaction():
        with pytest.raises(NameTaken, match="totals"):
            add(conn, "totals")
        assert len(stream_tables.every(conn)) == 2, "the caller's transaction goes on"


NAMES = {
    "totals": ("public", "totals"),
    "TOTALS": ("public", "totals"),
    "public.totals": ("public", "totals"),
    "Public . Totals": ("public", "totals"),
    '"totals"': ("public", "totals"),
    '"Totals"': ("public", "Totals"),
    'shop.totals': ("shop", "totals"),
    '"Odd Shop"."my.totals"': ("Odd Shop", "my.totals"),
    '"qu""ote"': ("public", 'qu"ote'),
    "umsätze_注文": ("public", "umsätze_注文"),
}  # fmt: skip


@pytest.fixture
def named(conn: Connection) -> None:
    for schema, name in sorted(set(NAMES.values())):
        add(conn, name, schema)


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize(("written", "meant"), NAMES.items(), ids=NAMES.keys())
def test_names_are_read_as_postgresql_reads_them(
    conn: Connection, written: str, meant: tuple[str, str]
) -> None:
    table = stream_tables.named(conn, written)
    assert (table.schema_name, table.name) == meant
    assert stream_tables.named(conn, table.qualified) == table


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize(
    "written",
    [
        "nonesuch",
        "shop.nonesuch",
        "nonesuch.totals",
        "a.b.totals",
        '"TOTALS"',
        "",
        " ",
        "a..b",
        '"open',
        "a b",
        "1;2",
    ],
)
def test_what_no_stream_table_has_is_an_error_and_no_more(conn: Connection, written: str) -> None:
    with conn.transaction():
        with pytest.raises(NoSuchStreamTable, match="does not exist") as raised:
            stream_tables.named(conn, written)
        assert raised.value.name == written
        conn.execute("SELECT 1")


def test_a_bare_name_is_looked_for_along_the_search_path(conn: Connection) -> None:
    conn.execute("CREATE SCHEMA first; CREATE SCHEMA second; CREATE SCHEMA third")
    for schema in ("second", "third"):
        add(conn, "totals", schema)
    conn.execute("SET search_path = first, third, second")
    assert stream_tables.named(conn, "totals").schema_name == "third"
    conn.execute("SET search_path = first, second")
    assert stream_tables.named(conn, "totals").schema_name == "second"
    conn.execute("SET search_path = first")
    with pytest.raises(NoSuchStreamTable):
        stream_tables.named(conn, "totals")


def test_many_move_to_one_frontier_together(conn: Connection) -> None:
    tables = [add(conn, name) for name in "abc"]
    stream_tables.record_failure(conn, tables[0].id, ValueError("broken"))
    ids = [table.id for table in tables[:2]]
    stream_tables.advance(
        conn, ids, Advance("10:20:12,15", AT, action="NO_DATA", reason="no_change")
    )
    a, b, c = stream_tables.every(conn)
    for moved in (a, b):
        assert (moved.frontier, moved.data_timestamp) == (Snapshot(10, 20, (12, 15)), AT)
        assert (moved.status, moved.last_action, moved.last_reason) == (
            "ACTIVE",
            "NO_DATA",
            "no_change",
        )
        assert (moved.consecutive_errors, moved.last_error) == (0, None)
        assert moved.last_refresh_at is not None
    assert c == tables[2]
    stream_tables.advance(conn, ids, Advance("20:20:", AT))
    assert stream_tables.get(conn, a.id).last_action == "NO_DATA", "what is not told stays"


def test_a_suspended_one_stays_suspended(conn: Connection) -> None:
    table = add(conn, "t")
    stream_tables.set_status(conn, table.id, "SUSPENDED")
    stream_tables.advance(conn, [table.id], Advance("20:20:", AT))
    assert stream_tables.get(conn, table.id).status == "SUSPENDED"


def test_failures_are_counted_until_a_success(conn: Connection) -> None:
    table = add(conn, "t")
    assert stream_tables.record_failure(conn, table.id, ValueError("first")) == 1
    assert stream_tables.record_failure(conn, table.id, ValueError("second")) == 2
    found = stream_tables.get(conn, table.id)
    assert (found.consecutive_errors, found.last_error) == (2, "second")


def test_removing_a_stream_table_removes_only_its_own_rows(conn: Connection) -> None:
    kept, gone = add(conn, "kept"), add(conn, "gone")
    sources.put(conn, Source(42, "public", "orders", "TRIGGER", ()))
    for table in (kept, gone):
        sources.add_dependency(conn, table.id, 42, ["a"])
        blocks.add(conn, table.id, [blocks.RecordedBlock(0, "main", "none", None, "scan")])
        history.add(conn, HistoryEntry(table.id, "FULL", "initial", "COMPLETED", "INITIAL", AT))
    stream_tables.remove(conn, gone.id)
    assert [table.name for table in stream_tables.every(conn)] == ["kept"]
    for own in ("dependencies", "blocks", "refresh_history"):
        assert conn.execute(f"SELECT stream_table_id FROM millstream.{own}").fetchall() == [
            (kept.id,)
        ]
    with pytest.raises(NoSuchStreamTable):
        stream_tables.get(conn, gone.id)


def test_dependants_and_sources_are_found(conn: Connection) -> None:
    lower, upper, other = add(conn, "lower", relid=42), add(conn, "upper"), add(conn, "other")
    sources.put(conn, Source(42, "public", "lower", "TRIGGER", ()))
    sources.put(conn, Source(43, "public", "orders", "TRIGGER", ()))
    sources.add_dependency(conn, lower.id, 43, ["a"])
    sources.add_dependency(conn, upper.id, 42, ["a"])
    sources.add_dependency(conn, upper.id, 43, ["a"])
    assert stream_tables.dependants(conn, lower.id) == [upper]
    assert stream_tables.dependants(conn, upper.id) == []
    assert [source.relid for source in sources.read_by(conn, upper.id)] == [42, 43]
    assert sources.read_by(conn, other.id) == []


@pytest.mark.parametrize(
    ("column", "value"), [("status", "RUNNING"), ("refresh_mode", "IMMEDIATE"), ("cdc_mode", "LOG")]
)
def test_a_value_that_makes_no_sense_cannot_be_stored(
    conn: Connection, column: str, value: str
) -> None:
    add(conn, "t")
    with pytest.raises(Exception, match=f"stream_tables_{column}_check"):
        conn.execute(f"UPDATE millstream.stream_tables SET {column} = '{value}'")
