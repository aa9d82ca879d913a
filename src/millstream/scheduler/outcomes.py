"""Record refreshes that applied nothing: failed, skipped or cancelled.

skipped                prevented by another process, a lock, or another stream table that has no rows yet
transient error        counted separately; never suspends
error that waits       status ERROR until its cause is gone, then refreshed again automatically
any other error        counted; the scheduler suspends a stream table after `max_consecutive_errors`
cancelled              in the history only

The history entry has the attempted action and its start. The action is SKIP if nothing was
attempted: the query could not be planned, a source could not be locked, a definition that it
depends on has changed.

After each of these the scheduler waits before it tries the stream table again (see `backoff`). A
refresh on request does not lengthen that wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import psycopg

from millstream.catalog import history, stream_tables
from millstream.catalog.history import HistoryEntry, Initiator, Status
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import Busy, Cancelled, MillstreamError, NoSuchStreamTable
from millstream.observe import log
from millstream.postgres import notifications
from millstream.postgres.failures import code_of, transient_trouble
from millstream.scheduler import backoff
from millstream.scheduler.context import SchedulerContext


def record_failure(
    context: SchedulerContext,
    table: StreamTable,
    error: MillstreamError,
    initiated_by: Initiator,
    started_at: datetime,
) -> None:
    """Record that the refresh of a stream table applied nothing, and suspend it after too many
    errors.

    `started_at` is the start of the round, recorded for a refresh that was not attempted.
    """
    if initiated_by == "SCHEDULER" and _is_our_own_work(context, error):
        context.journal.take(table.id)
        return
    known = error.waits and (table.status, table.last_error) == ("ERROR", str(error))
    if not known:
        (log.info if error.skips else log.error)(
            "refresh skipped" if error.skips else "refresh failed",
            table=table.name, code=error.code, message=error.message,
        )  # fmt: skip
    attempt = context.journal.take(table.id)
    if isinstance(error, NoSuchStreamTable):
        return
    try:
        # If another process is refreshing it, a write to its catalog row would make that refresh
        # fail.
        with context.mutex.stream_tables([table.id]) as free, context.conn.transaction():
            if context.epoch is not None:
                context.epoch.hold(context.conn)
            if free:
                _hold_off(context, table, error, initiated_by)
            if free and not known:
                _count(context, table, error, initiated_by)
            if not known or attempt:
                entry = _entry(error, attempt or _unattempted(table, initiated_by, started_at))
                _enter(context, entry, attempt)
                _announce(context, table, entry, error)
    except psycopg.Error as trouble:
        # The server may lack the resources for this write, too.
        if context.conn.closed or transient_trouble(code_of(trouble)) is None:
            raise
        log.warning("not recorded", table=table.name, reason=str(trouble))


def _is_our_own_work(context: SchedulerContext, error: MillstreamError) -> bool:
    """Return True if this service itself works on the stream table, for a request."""
    if context.epoch is None or not isinstance(error, Busy):
        return False
    holder = error.facts.get("holder")
    return holder is None or f"({context.mutex.owner}" in str(holder)


def record_interrupt(
    context: SchedulerContext,
    tables: Sequence[StreamTable],
    initiated_by: Initiator,
    started_at: datetime,
) -> None:
    """Record in the history which refreshes Ctrl-C has cancelled, unless it also ended the
    connection.
    """
    attempts = {table.id: context.journal.take(table.id) for table in tables}
    try:
        context.reach()
        with context.conn.transaction():
            if context.epoch is not None:
                context.epoch.hold(context.conn)
            for table in tables:
                error, attempt = (
                    Cancelled.by(table.name, "Interrupted by Ctrl-C."),
                    attempts[table.id],
                )
                _enter(
                    context,
                    _entry(error, attempt or _unattempted(table, initiated_by, started_at)),
                    attempt,
                )
    except (MillstreamError, psycopg.Error) as trouble:
        log.warning("not recorded", reason=str(trouble))


def _hold_off(
    context: SchedulerContext, table: StreamTable, error: MillstreamError, initiated_by: Initiator
) -> None:
    if initiated_by == "SCHEDULER":
        longest = backoff.LONGEST_SKIP if error.skips or error.waits else backoff.LONGEST
        stream_tables.hold_off(
            context.conn, table.id, backoff.random_delay(table.failed_tries + 1, longest=longest)
        )


def _count(
    context: SchedulerContext, table: StreamTable, error: MillstreamError, initiated_by: Initiator
) -> None:
    """Count an error, and change the status of the stream table if the kind of error requires it."""
    if isinstance(error, Cancelled):
        return
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


def _enter(context: SchedulerContext, entry: HistoryEntry, attempt: HistoryEntry | None) -> None:
    """Write the outcome of a refresh into the history, in place of its entry RUNNING."""
    if attempt is not None and attempt.id is not None:
        history.remove_running(context.conn, [attempt.id])
    if entry.status == "SKIPPED":
        history.add_unless_repeated(context.conn, entry)
    else:
        history.add(context.conn, entry)


def _announce(
    context: SchedulerContext, table: StreamTable, entry: HistoryEntry, error: MillstreamError
) -> None:
    if entry.status == "FAILED":
        notifications.alert(
            context.conn, "refresh_failed", stream_table=table.qualified, action=entry.action,
            initiated_by=entry.initiated_by, code=error.code, message=error.message, detail=error.detail,
            hint=error.hint, is_transient=error.retryable,
        )  # fmt: skip


def _unattempted(table: StreamTable, initiated_by: Initiator, started_at: datetime) -> HistoryEntry:
    return HistoryEntry(table.id, "SKIP", "", "FAILED", initiated_by, started_at)


def _entry(error: MillstreamError, attempt: HistoryEntry) -> HistoryEntry:
    """Return the history entry of a refresh that ended with an error."""
    return replace(
        attempt,
        id=None,
        status=_status(error),
        reason=error.code,
        finished_at=datetime.now(UTC),
        error=error.as_dict(),
    )


def _status(error: MillstreamError) -> Status:
    if isinstance(error, Cancelled):
        return "CANCELLED"
    return "SKIPPED" if error.skips else "FAILED"
