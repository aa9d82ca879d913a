"""Rows of the catalog made by hand, for tests without a server; and time that passes for those with
one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from millstream.catalog import stream_tables
from millstream.catalog.stream_tables import StreamTable
from millstream.postgres.connection import Connection

_MOMENT = datetime(2024, 6, 1, 12, tzinfo=UTC)

_PLAIN = StreamTable(
    id=1,
    schema_name="public",
    name="totals",
    relid=1,
    query="SELECT 1",
    canonical_query="SELECT 1",
    schedule="1s",
    refresh_mode="AUTO",
    status="ACTIVE",
    cdc_mode=None,
    frontier=None,
    data_timestamp=None,
    last_refresh_at=None,
    last_action=None,
    last_reason=None,
    consecutive_errors=0,
    last_error=None,
    created_at=_MOMENT,
    updated_at=_MOMENT,
    created_by="owner",
)


# Fields are of many types; `replace` checks their names.
def stream_table(id_: int = 1, **fields: Any) -> StreamTable:
    """Return a stream table that is active, never refreshed, and has the given fields.

    >>> stream_table(7, schedule="5m").schedule
    '5m'
    """
    return replace(_PLAIN, id=id_, relid=fields.pop("relid", id_), **fields)


def end_backoff(conn: Connection) -> None:
    """Let the next tick try every stream table, as if the time until its next try had passed."""
    stream_tables.try_now(conn, [table.id for table in stream_tables.every(conn)])
