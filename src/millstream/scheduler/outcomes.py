"""Record refreshes that applied nothing: failed, cancelled, or to be tried again.

transient error        counted apart; never suspends
error that waits       status ERROR until its cause is gone, then refreshed again by itself
any other error        counted; the scheduler suspends a stream table after `max_consecutive_errors`
cancelled              in the history only
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import psycopg

from millstream.catalog import history, stream_tables
from millstream.catalog.history import HistoryEntry, Initiator, Status
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import Cancelled, MillstreamError, NoSuchStreamTable
from millstream.observe import log
from millstream.postgres.failures import code_of, transient_trouble
from millstream.scheduler.context import SchedulerContext


def record_failure(
    context: SchedulerContext, table: StreamTable, error: MillstreamError, initiated_by: Initiator
) -> None:
    """Record that the refresh of a stream table failed, and suspend it if it fails again and again."""
    if error.waits and (table.status, table.last_error) == ("ERROR", str(error)):
        # Already recorded: the cause is checked again with every tick.
        return
    log.error("refresh failed", table=table.name, code=error.code, message=error.message)
    if isinstance(error, NoSuchStreamTable):
        return
    if isinstance(error, Cancelled):
        history.add(context.conn, _entry(table, error, "CANCELLED", initiated_by))
    elif error.retryable:
        _count_transient(context, table, error)
    else:
        _count_failure(context, table, error, initiated_by)


def record_interrupt(context: SchedulerContext, tables: Sequence[StreamTable], initiated_by: Initiator) -> None:
    """Record in the history which refreshes Ctrl-C has cancelled, unless the connection was lost with it."""
    reason = "Interrupted by Ctrl-C."
    entries = [_entry(table, Cancelled.by(table.name, reason), "CANCELLED", initiated_by) for table in tables]
    try:
        context.reach()
        history.add_all(context.conn, entries)
    except (MillstreamError, psycopg.Error) as trouble:
        log.warning("not recorded", reason=str(trouble))


def _count_failure(
    context: SchedulerContext, table: StreamTable, error: MillstreamError, initiated_by: Initiator
) -> None:
    count = stream_tables.record_failure(context.conn, table.id, error)
    history.add(context.conn, _entry(table, error, "FAILED", initiated_by))
    if error.waits:
        stream_tables.set_status(context.conn, table.id, "ERROR")
    elif count >= context.settings.max_consecutive_errors and initiated_by == "SCHEDULER":
        stream_tables.set_status(context.conn, table.id, "SUSPENDED")
        log.error("suspended", table=table.name, errors=count)


def _count_transient(context: SchedulerContext, table: StreamTable, error: MillstreamError) -> None:
    """Count the error, unless another process refreshes the stream table now: this write would make it fail."""
    try:
        with context.mutex.stream_tables([table.id]) as free:
            if free:
                stream_tables.record_transient(context.conn, table.id, error)
    except psycopg.Error as trouble:
        # The server may lack the resources to write this down, too.
        if context.conn.closed or transient_trouble(code_of(trouble)) is None:
            raise
        log.warning("not recorded", table=table.name, reason=str(trouble))


def _entry(table: StreamTable, error: MillstreamError, status: Status, initiated_by: Initiator) -> HistoryEntry:
    now = datetime.now(UTC)
    return HistoryEntry(table.id, "SKIP", error.code, status, initiated_by, now, finished_at=now, error=error.as_dict())
