"""Upgrades: a catalog filled by the version before a migration is read back whole after it."""

from __future__ import annotations

import pytest

from millstream.catalog import blocks, history, slots, sources, stream_tables
from millstream.catalog.definitions import definition_digests
from millstream.catalog.installation import install
from millstream.catalog.slots import Watermark
from millstream.catalog.sources import CapturedColumn, Cutover, Source
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection

# A partitioned source moving to WAL, with a cutover that its reader has not passed yet, and the
# stream table that reads it; as the version before migration 14 wrote them.
FILLED_BEFORE_14 = """
    CREATE TABLE orders (id int, amount numeric) PARTITION BY RANGE (id);
    CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (100);
    CREATE TABLE totals (n bigint);

    INSERT INTO millstream.sources (
        relid, schema_name, name, cdc_mode, columns, members, reason, turns, published_at, published_as, identities,
        turned_at, member_names
    ) VALUES (
        'orders'::regclass, 'public', 'orders', 'TRANSITIONING',
        '[{"attnum": 1, "name": "id", "type_oid": 23, "type_name": "pg_catalog.int4", "typmod": -1, "collation": 0,
           "generation": null}]',
        ARRAY['orders_1'::regclass::oid], 'waiting', '[["10:20:12,15", "t"]]', '777', '{4711}',
        jsonb_build_object('orders_1'::regclass::oid::text, 'DEFAULT'), '2026-01-02 03:04:05Z', '{public.orders_1}'
    );
    INSERT INTO millstream.stream_tables (
        schema_name, name, relid, query, canonical_query, schedule, refresh_mode, status, cdc_mode, frontier,
        data_timestamp, last_action, row_key, planned_by, asks_clock, is_guarded
    ) VALUES (
        'public', 'totals', 'totals'::regclass, 'SELECT count(*) AS n FROM orders', 'SELECT count(*) AS n FROM orders',
        '1s', 'AUTO', 'ACTIVE', 'wal', '10:10:', '2026-01-02 03:04:05Z', 'FULL',
        '{"kind": "single", "columns": [], "nullable": false, "sources": {}}', 'stamp', true, true
    );
    INSERT INTO millstream.dependencies SELECT id, 'orders'::regclass, '{id}' FROM millstream.stream_tables;
    INSERT INTO millstream.blocks SELECT id, 0, 'main', 'aggregate', NULL, 'plan' FROM millstream.stream_tables;
    INSERT INTO millstream.grounds
        SELECT id, 'table', 'orders'::regclass, 'public.orders' FROM millstream.stream_tables;
    INSERT INTO millstream.refresh_history (stream_table_id, action, reason, status, initiated_by, started_at)
        SELECT id, 'FULL', 'FIRST', 'COMPLETED', 'INITIAL', now() FROM millstream.stream_tables;
    INSERT INTO millstream.slots (
        name, publication, publication_oid, database_oid, system_identifier, timeline, created_lsn, cursor
    ) VALUES ('millstream_x', 'millstream_x', 1, 1, '1', 1, '0/10', '0/20');
    INSERT INTO millstream.watermarks VALUES ('millstream_x', 'orders'::regclass, '0/18', 3);
"""


def install_before(conn: Connection, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the catalog as it was before the migration of that number."""
    every = install.migrations()
    with monkeypatch.context() as patch:
        patch.setattr(install, "migrations", lambda: every[: version - 1])
        assert install.install(conn) == version - 1


def oid(conn: Connection, name: str) -> int:
    return int(conn.execute("SELECT %s::regclass::oid", (name,)).fetchall()[0][0])


@pytest.fixture
def upgraded(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """A catalog that was filled before migration 14, and upgraded."""
    install_before(conn, 14, monkeypatch)
    conn.execute(FILLED_BEFORE_14.encode())
    assert install.install(conn) == install.known()
    install.require(conn)
    return conn


def test_a_source_in_transition_keeps_everything_through_the_renaming_of_its_columns(
    upgraded: Connection,
) -> None:
    orders, partition = oid(upgraded, "orders"), oid(upgraded, "orders_1")
    source = sources.get(upgraded, orders)
    assert source == Source(
        orders, "public", "orders", "TRANSITIONING", (CapturedColumn(1, "id", 23, "pg_catalog.int4"),),
        partitions=(partition,), reason="waiting", cutovers=(Cutover(Snapshot.parse("10:20:12,15"), "t"),),
        published_at=777, published_as=(4711,), identities={partition: "DEFAULT"},
    )  # fmt: skip
    assert source.mode_changed_at is not None
    assert source.mode_changed_at.isoformat().startswith("2026-01-02T03:04:05")
    assert sources.drift_by_column(upgraded) == {}
    names = upgraded.execute("SELECT partition_names FROM millstream.sources").fetchall()
    assert names == [(["public.orders_1"],)]
    assert slots.watermarks(upgraded, "millstream_x") == {orders: Watermark(0x18, 3)}


def test_a_stream_table_keeps_everything_through_the_renaming_of_its_columns(
    upgraded: Connection,
) -> None:
    table = stream_tables.named(upgraded, "totals")
    assert (table.reads_clock, table.planned_by, table.is_guarded) == (True, "stamp", True)
    assert (table.frontier, table.status, table.last_action) == (Snapshot(10, 10), "ACTIVE", "FULL")
    orders = oid(upgraded, "orders")
    assert definition_digests.recorded(upgraded, [table.id]) == {
        table.id: {("table", orders): "public.orders"}
    }
    assert [source.relid for source in sources.read_by(upgraded, table.id)] == [orders]
    assert [block.head for block in blocks.of(upgraded, table.id)] == ["aggregate"]
    assert [entry.reason for entry in history.recent(upgraded, table.id)] == ["FIRST"]
    # The catalog can be written too.
    definition_digests.record(upgraded, table.id, {("view", 1): "v"})
    assert definition_digests.recorded(upgraded, [table.id]) == {table.id: {("view", 1): "v"}}
    stream_tables.set_planned(upgraded, table.id, planned_by="later", reads_clock=False)
    assert stream_tables.get(upgraded, table.id).reads_clock is False


def test_the_health_functions_read_the_renamed_columns_and_stay_closed_to_others(
    upgraded: Connection,
) -> None:
    columns = "source::text, cdc_mode, slot_name, pending_cutovers, reason, alert"
    rows = upgraded.execute(
        f"SELECT {columns} FROM millstream.check_cdc_health()".encode()
    ).fetchall()
    assert rows == [
        ("orders", "TRANSITIONING", "millstream_x", 1, "waiting", "The slot does not exist.")
    ]
    query = """
        SELECT p.proname, p.prosecdef, has_function_privilege('pg_monitor', p.oid, 'EXECUTE')
        FROM pg_proc AS p
        WHERE p.pronamespace = 'millstream'::regnamespace AND p.proname IN ('check_cdc_health', 'slot_health')
        ORDER BY 1
    """
    assert upgraded.execute(query).fetchall() == [
        ("check_cdc_health", True, False),
        ("slot_health", True, False),
    ]


def test_a_catalog_that_was_never_upgraded_can_be_forgotten(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables with former names are the catalog's, not a user's."""
    install_before(conn, 14, monkeypatch)
    install.uninstall(conn, forget=True)
    assert install.version(conn) is None
