"""The journal: history entries of running refreshes, visible to other sessions.

    decided what to do     entry RUNNING        committed at once, by the session of the journal
    rows applied           entry COMPLETED      committed with the rows, by the session of the refresh
    afterwards             entry RUNNING is removed

These are two entries and not one that is updated, since the refresh cannot update a row that is
newer than its snapshot.

A process may die at any time and leave an entry RUNNING. The entry has the transaction id of its
refresh, and the server knows whether that transaction has ended. If it has and the refresh was
completed, the entry is removed. Otherwise the refresh may be about to be tried again, so the entry
becomes FAILED only if the session of the journal that wrote it is gone too
(`history.fail_orphans`). This is done whenever a journal is opened, and by the service.

A refresh without changes has no entry RUNNING, even if it moves the data timestamp. The journal
never makes a refresh fail or wait: an entry that cannot be written at once is omitted, with a
warning in the log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg

from millstream.catalog import history
from millstream.catalog.history import HistoryEntry
from millstream.errors import MillstreamError, ServerDown
from millstream.observe import log
from millstream.postgres import notifications
from millstream.postgres.connection import Connection, session, without_password
from millstream.postgres.notifications import Alert, Fact

# Seconds between two attempts to connect: each may take long, and a refresh waits for it.
TRY_AGAIN = 60.0


class Journal:
    """A session that records running refreshes. Use it from one thread at a time."""

    def __init__(self, dsn: str, *, application_name: str = "millstream journal") -> None:
        self.dsn = dsn
        self.application_name = application_name
        self._conn: Connection | None = None
        self._not_before = float("-inf")
        """When to connect again at the earliest, by the monotonic clock."""
        self._running: dict[int, HistoryEntry] = {}

    def begin(self, entries: Sequence[HistoryEntry], transaction_id: int) -> list[HistoryEntry]:
        """Record that these refreshes are running in a transaction; return those that were not
        recorded before.

        The start of a refresh that is tried again is that of its first try.
        """
        if not entries:
            return []
        known = self._running
        again = [
            known[entry.stream_table_id] for entry in entries if entry.stream_table_id in known
        ]
        started = {entry.stream_table_id: entry.started_at for entry in again}
        begun = [
            replace(one, started_at=started.get(one.stream_table_id, one.started_at))
            for one in entries
        ]
        self._running |= {entry.stream_table_id: entry for entry in begun}
        if ids := self._write(begun, again, transaction_id):
            written = zip(begun, ids, strict=True)
            self._running |= {entry.stream_table_id: replace(entry, id=id) for entry, id in written}
        return [entry for entry in begun if entry.stream_table_id not in started]

    def alert(self, kind: Alert, **facts: Fact) -> None:
        """Send an alert at once, even if the transaction of the refresh rolls back."""
        try:
            notifications.alert(self._connected(), kind, **facts)
        except (psycopg.Error, MillstreamError) as error:
            log.warning("alert not sent", alert=kind, reason=str(error))

    def sessions(self) -> list[Connection]:
        """Return the session, if there is one."""
        return [self._conn] if self._conn is not None else []

    def end(self, stream_table_ids: Sequence[int]) -> None:
        """Remove the entries of refreshes that are completed."""
        ended = [self._running.pop(id) for id in stream_table_ids if id in self._running]
        if ended:
            self._write([], ended, None)

    def take(self, stream_table_id: int) -> HistoryEntry | None:
        """Return the entry RUNNING of a refresh that has failed, if it has one; the caller replaces
        it.
        """
        return self._running.pop(stream_table_id, None)

    def forget(self) -> None:
        """Forget the running refreshes; the next process that opens a journal removes their
        entries.
        """
        self._running.clear()
        self.close()

    def _write(
        self,
        begun: Sequence[HistoryEntry],
        ended: Sequence[HistoryEntry],
        transaction_id: int | None,
    ) -> list[int] | None:
        ids = [entry.id for entry in ended if entry.id is not None]
        if not begun and not ids:
            return None
        try:
            return history.exchange_running(self._connected(), ids, begun, transaction_id)
        except (psycopg.Error, MillstreamError) as error:
            log.warning("not written in the journal", reason=str(error))
            return None

    def _connected(self) -> Connection:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self.close()
            if time.monotonic() < self._not_before:
                raise ServerDown.unreachable(
                    without_password(self.dsn), "The journal tries again within a minute."
                )
            self._not_before = time.monotonic() + TRY_AGAIN
            self._conn = _opened(self.dsn, self.application_name)
            self._not_before = float("-inf")
        return self._conn

    def close(self) -> None:
        """Close the session."""
        if self._conn is not None:
            # The session may be lost: then there is nothing to close.
            with suppress(psycopg.Error):
                self._conn.close()
            self._conn = None


def _opened(dsn: str, application_name: str) -> Connection:
    conn = session(dsn)
    conn.execute("SELECT set_config('application_name', %s, false)", (application_name,))
    # If the server crashes, entries may be lost; their refreshes have then ended too.
    conn.execute("SET synchronous_commit = off; SET lock_timeout = '200ms'")
    history.fail_orphans(conn)
    return conn
