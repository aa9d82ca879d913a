"""Check whether the next refresh can set up the capture of a source again: are the queries over it
still valid?

A source that was dropped, or that lost a column, has no capture that a refresh could repair. The
queries are planned as a refresh would plan them, and PostgreSQL's errors are reported.
"""

from __future__ import annotations

from millstream.catalog import sources, stream_tables
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import MillstreamError
from millstream.postgres.connection import Connection

REPAIRED = "The next refresh restores capture and reinitialises the stream tables that read it."


def hint(conn: Connection, relid: int, trusted_roles: tuple[str, ...]) -> str:
    """Return what to do about a source that is not fully captured."""
    found = [
        (table, why)
        for table in _readers(conn, relid)
        if (why := _obstacle(conn, table, trusted_roles))
    ]
    if not found:
        return REPAIRED
    drops = "; ".join(f"millstream drop {table.typed}" for table, _ in found)
    _, why = found[0]
    return (
        f"No refresh can repair it: {why}. Restore what the queries use of the source, or drop the stream "
        f"tables: {drops}"
    )


def _readers(conn: Connection, relid: int) -> list[StreamTable]:
    tables = stream_tables.every(conn)
    read = sources.read_by_each(conn, [table.id for table in tables])
    return [
        table for table in tables if any(source.relid == relid for source in read.get(table.id, ()))
    ]


def _obstacle(conn: Connection, table: StreamTable, trusted_roles: tuple[str, ...]) -> str:
    """Return why its query can no longer be planned; "" if it can."""
    # Imported here, so that `doctor` does not load Spark's modules if nothing is wrong.
    from millstream.service.app import plan_recorded

    try:
        plan_recorded(conn, table, trusted_roles)
    except MillstreamError as error:
        return error.detail.rstrip(".") if error.code == "MS301" else error.message
    return ""
