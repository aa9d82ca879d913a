"""Record refreshes that applied nothing: failed, skipped or cancelled.

skipped                something is in the way: another process, a lock, another stream table that has no rows yet
transient error        counted apart; never suspends
error that waits       status ERROR until its cause is gone, then refreshed again by itself
any other error        counted; the scheduler suspends a stream table after `max_consecutive_errors`
cancelled              in the history only

After each of them the scheduler leaves the stream table alone for a while (see `backoff`). A refresh that somebody
asked for does not lengthen that.
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
from millstream.postgres import notifications
from millstream.postgres.failures import code_of, transient_trouble
from millstream.scheduler import backoff
from millstream.scheduler.context import SchedulerContext


def record_failure(
    context: SchedulerContext, table: StreamTable, error: MillstreamError, initiated_by: Initiator
) -> None:
    """Record that the refresh of a stream table applied nothing, and suspend it if it fails again and again."""
    known = error.waits and (table.status, table.last_error) == ("ERROR", str(error))
    if not known:
        (log.info if error.skips else log.error)(
            "refresh skipped" if error.skips else "refresh failed",
            table=table.name, code=error.code, message=error.message,
        )  # fmt: skip
    if isinstance(error, NoSuchStreamTable):
        return
    try:
        # If another process refreshes it now, a write to its row in the catalog would make that refresh fail.
        with context.mutex.stream_tables([table.id]) as free, context.conn.transaction():
            if free:
                _record(context, table, error, initiated_by, known=known)
            elif error.skips:
                history.add_unless_repeated(context.conn, _entry(table, error, "SKIPPED", initiated_by))
    except psycopg.Error as trouble:
        # The server may lack the resources to write this down, too.
        if context.conn.closed or transient_trouble(code_of(trouble)) is None:
            raise
        log.warning("not recorded", table=table.name, reason=str(trouble))


def record_interrupt(context: SchedulerContext, tables: Sequence[StreamTable], initiated_by: Initiator) -> None:
    """Record in the history which refreshes Ctrl-C has cancelled, unless the connection was lost with it."""
    reason = "Interrupted by Ctrl-C."
    entries = [_entry(table, Cancelled.by(table.name, reason), "CANCELLED", initiated_by) for table in tables]
    try:
        context.reach()
        history.add_all(context.conn, entries)
    except (MillstreamError, psycopg.Error) as trouble:
        log.warning("not recorded", reason=str(trouble))


def _record(
    context: SchedulerContext, table: StreamTable, error: MillstreamError, initiated_by: Initiator, *, known: bool
) -> None:
    conn = context.conn
    if initiated_by == "SCHEDULER":
        longest = backoff.LONGEST_SKIP if error.skips else backoff.LONGEST
        stream_tables.hold_off(conn, table.id, backoff.random_delay(table.failed_tries + 1, longest=longest))
    if known:
        return
    if isinstance(error, Cancelled):
        history.add(conn, _entry(table, error, "CANCELLED", initiated_by))
    elif error.skips:
        stream_tables.record_transient(conn, table.id, error)
        history.add_unless_repeated(conn, _entry(table, error, "SKIPPED", initiated_by))
    else:
        _count(context, table, error, initiated_by)
        history.add(conn, _entry(table, error, "FAILED", initiated_by))


def _count(context: SchedulerContext, table: StreamTable, error: MillstreamError, initiated_by: Initiator) -> None:
    """Count an error, and change the status of the stream table where that is called for."""
    if error.retryable:
        stream_tables.record_transient(context.conn, table.id, error)
        return
    count = stream_tables.record_failure(context.conn, table.id, error)
    if error.waits:
        stream_tables.set_status(context.conn, table.id, "ERROR")
    elif count >= context.settings.max_consecutive_errors and initiated_by == "SCHEDULER":
        stream_tables.set_status(context.conn, table.id, "SUSPENDED")
        notifications.alert(
            context.conn, "auto_suspended", stream_table=table.qualified, errors=count, code=error.code,
            message=error.message, hint=f"Resume it with: millstream alter {table.typed} --status ACTIVE",
        )  # fmt: skip


def _entry(table: StreamTable, error: MillstreamError, status: Status, initiated_by: Initiator) -> HistoryEntry:
    now = datetime.now(UTC)
    return HistoryEntry(table.id, "SKIP", error.code, status, initiated_by, now, finished_at=now, error=error.as_dict())
