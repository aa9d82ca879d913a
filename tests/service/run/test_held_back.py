"""The service tells of change buffers that a stream table which stands still lets grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

from millstream.capture.buffer import buffer_table
from millstream.catalog import sources, stream_tables
from millstream.catalog.installation import install
from millstream.catalog.processes import leadership
from millstream.postgres.connection import Connection
from millstream.service.run import upkeep
from millstream.service.run.held_back import HeldBackBuffer, HeldBackWatch
from millstream.service.run.upkeep import Upkeep
from millstream.settings import Settings

SETTINGS = Settings(slot_lag_warning=100 << 10, slot_lag_critical=1 << 30)


def test_each_source_is_reported_once_until_its_buffer_was_small_again() -> None:
    watch = HeldBackWatch()

    def told(**sizes: int) -> list[str]:
        found = [
            HeldBackBuffer(name, "", size << 10, 1, ["st"], None) for name, size in sizes.items()
        ]
        return [one.source for one in watch.look(found, SETTINGS)]

    assert [told(a=100, b=101), told(a=101, b=60), told(a=101, b=50), told(a=101, b=101)] == [
        ["b"],
        ["a"],
        [],
        ["b"],
    ]
    # What is held back no more is forgotten.
    assert [told(b=101), told(a=101)] == [[], ["a"]]


def test_a_large_buffer_is_reported_with_the_readers_that_it_waits_for(
    conn: Connection, another: Callable[[], Connection]
) -> None:
    install.install(conn)
    conn.execute("CREATE TABLE public.t (id int)")
    relid = conn.execute("SELECT 'public.t'::regclass::oid").fetchall()[0][0]
    sources.reserve(conn, relid, "public", "t")
    buffer_table.make(conn, relid, ())
    table = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name="st", query="", canonical_query="", schedule="manual"
        ),
    )
    sources.add_dependency(conn, table.id, relid, ["id"])
    snapshot = conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0]
    stream_tables.advance(conn, [table.id], stream_tables.Advance(snapshot, datetime.now(UTC)))
    listener = another()
    listener.execute("LISTEN millstream_alert")
    work = Upkeep(leadership.take_over(conn, uuid4()))
    work.look(conn, SETTINGS, [], datetime.now(UTC))
    rows = "SELECT pg_current_xact_id(), 'I' FROM generate_series(1, 3000)"
    conn.execute(f"INSERT INTO millstream_changes.changes_{relid} (xid, action) {rows}".encode())
    for _ in range(2):
        work.held_back_at -= upkeep.HELD_BACK
        work.look(conn, SETTINGS, [], datetime.now(UTC))
    conn.execute('NOTIFY millstream_alert, \'{"alert": "the end"}\'')
    heard = [json.loads(one.payload) for one in listener.notifies(timeout=60, stop_after=2)]
    assert [one["alert"] for one in heard] == ["changes_held_back", "the end"]
    assert (heard[0]["source"], heard[0]["held_back_by"]) == ("public.t", ["public.st"])
    assert heard[0]["size_bytes"] > heard[0]["limit_bytes"] == 100 << 10
