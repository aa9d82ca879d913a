"""The leader's periodic work besides refreshing: alerts about freshness, and pruning the history.

every 5 seconds    which stream tables are stale, and does the service fall behind (`scheduler/freshness.py`)
every 5 seconds    record how old rows may become by cron schedules, for `is_stale` in SQL
every minute       alerts about change buffers that are held back (`held_back.py`)
every minute       entries RUNNING of processes that have ended become FAILED; also when it takes over
every hour         delete entries of the history that are older than `history_retention`, some thousand at a time
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby

from millstream.catalog import history, stream_tables
from millstream.catalog.processes.leadership import Epoch
from millstream.observe import log
from millstream.postgres import notifications
from millstream.postgres.connection import Connection
from millstream.scheduler.freshness import FreshnessWatch, Watched
from millstream.service.run import held_back
from millstream.service.run.held_back import HeldBackWatch
from millstream.settings import Settings

# Seconds between two checks.
FRESHNESS, ORPHANS, HELD_BACK, RETENTION = 5.0, 60.0, 60.0, 3600.0


@dataclass
class Upkeep:
    """The upkeep of one leadership."""

    epoch: Epoch
    clock: float = float("-inf")
    """When freshness was last checked, by the monotonic clock, like the others."""
    orphans_at: float = float("-inf")
    retention_at: float = float("-inf")
    held_back_at: float = float("-inf")
    promised: dict[int, timedelta] = field(default_factory=dict)
    """By stream table with a cron schedule: how old its rows may become, as it was recorded last.
    """
    watch: FreshnessWatch = field(default_factory=FreshnessWatch)
    held_back: HeldBackWatch = field(default_factory=HeldBackWatch)

    def is_due(self) -> bool:
        """Return True if anything has to be done. Runs no statement."""
        return time.monotonic() - self.clock >= FRESHNESS

    def look(
        self, conn: Connection, settings: Settings, tables: Iterable[Watched], now: datetime
    ) -> None:
        """Do what is due."""
        self.clock = time.monotonic()
        watched = list(tables)
        self._tell_freshness(conn, settings, watched, now)
        self._record_promises(conn, {table.id: table.target for table in watched if table.is_cron})
        if self.clock - self.orphans_at >= ORPHANS:
            self.orphans_at = self.clock
            if failed := history.fail_orphans(conn):
                log.warning("refreshes of processes that are gone", failed=failed)
        if self.clock - self.held_back_at >= HELD_BACK:
            self.held_back_at = self.clock
            self._tell_held_back(conn, settings)
        if self.clock - self.retention_at >= RETENTION:
            removed = history.prune_some(conn, settings.history_retention)
            if removed < history.PRUNED_AT_ONCE:
                self.retention_at = self.clock

    def _record_promises(self, conn: Connection, promised: dict[int, timedelta]) -> None:
        if changed := dict(promised.items() - self.promised.items()):
            with conn.transaction():
                self.epoch.hold(conn)
                stream_tables.record_promises(conn, changed)
        self.promised = promised

    def _tell_held_back(self, conn: Connection, settings: Settings) -> None:
        if large := self.held_back.look(held_back.read(conn), settings):
            with conn.transaction():
                self.epoch.hold(conn)
                held_back.send(conn, large, settings)

    def _tell_freshness(
        self, conn: Connection, settings: Settings, tables: Iterable[Watched], now: datetime
    ) -> None:
        if not settings.enabled:
            # The scheduler is off, so stream tables are stale on purpose.
            self.watch = FreshnessWatch()
            return
        alerts = self.watch.look(tables, now, workers=settings.max_concurrent_refreshes)
        if alerts:
            with conn.transaction():
                self.epoch.hold(conn)
                for kind, together in groupby(alerts, key=lambda alert: alert.kind):
                    notifications.alert_all(conn, kind, [alert.facts for alert in together])
