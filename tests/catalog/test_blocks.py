"""Blocks in the catalog."""

from __future__ import annotations

from millstream.catalog import blocks, stream_tables
from millstream.catalog.blocks import RecordedBlock
from millstream.catalog.installation import install
from millstream.postgres.connection import Connection


def test_blocks_come_back_in_order_and_are_replaced_together(conn: Connection) -> None:
    install.install(conn)
    table = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name="t", query="", canonical_query="", schedule="1s"
        ),
    )
    chain = [
        RecordedBlock(0, "inner", "aggregate", 42, "Aggregate\n  Scan"),
        RecordedBlock(1, "outer", "none", None, "Project"),
    ]
    blocks.add(conn, table.id, chain[::-1])
    assert blocks.of(conn, table.id) == chain
    blocks.add(conn, table.id, chain[:1])
    assert blocks.of(conn, table.id) == chain[:1]
    assert blocks.of(conn, table.id + 1) == []
