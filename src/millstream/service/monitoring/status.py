"""The verbs status and history: list stream tables, their freshness and their refreshes. They do
not start Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from millstream.capture.buffer import slices
from millstream.catalog import history as entries
from millstream.catalog import sources, stream_tables
from millstream.catalog.definitions import rights
from millstream.catalog.history import HistoryEntry
from millstream.catalog.sources import Source
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import BadSetting
from millstream.service.app import App
from millstream.service.verb import verb

_CAP = 100_000


@dataclass(frozen=True)
class SourceStatus:
    """How a source of a stream table is captured."""

    name: str
    cdc_mode: str
    reason: str | None
    """Why it is captured so, where that needs saying, and what would change it."""


@dataclass(frozen=True)
class StreamTableStatus:
    """One line of `millstream status`."""

    name: str
    schema: str
    status: str
    refresh_mode: str
    schedule: str
    rows: int
    """PostgreSQL's estimate."""
    data_timestamp: datetime | None
    staleness_seconds: float | None
    last_action: str | None
    last_reason: str | None
    pending_changes: int
    """Captured and not yet consumed, over all sources; at most 100,000 are counted."""
    consecutive_errors: int
    last_error: str | None
    sources: tuple[SourceStatus, ...] = ()
    transient_errors: int = 0
    """Refreshes in a row that failed for a reason that passes by itself; they never suspend it."""
    last_transient_error: str | None = None
    next_try_at: datetime | None = None
    """After a failed refresh: not tried again by schedule before."""
    no_data_refreshes: int = 0
    """Scheduled refreshes that found no change; they are counted and leave no history."""
    owner: str | None = None
    notices: tuple[str, ...] = ()
    """What its readers should know."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The session settings that its query is evaluated with."""
    assume_immutable: Sequence[str] = ()
    """The STABLE functions that its creator declares immutable."""

    def as_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        moments = {
            name: moment.isoformat() if (moment := getattr(self, name)) else None
            for name in ("data_timestamp", "next_try_at")
        }
        return {**asdict(self), **moments}


@verb
def status(app: App) -> list[StreamTableStatus]:
    """Return all stream tables, ordered by name."""
    tables = stream_tables.every(app.conn)
    read = sources.read_by_each(app.conn, [table.id for table in tables])
    waiting, sizes, ages = (
        _pending(app, tables, read),
        _sizes(app),
        stream_tables.staleness(app.conn),
    )
    owners = rights.owners(app.conn, [table.relid for table in tables if table.relid])
    policies = rights.with_policies(
        app.conn, list({source.relid for each in read.values() for source in each})
    )
    found = [
        _status(
            table,
            ages.get(table.id),
            sizes.get(table.relid or 0, 0),
            waiting.get(table.id, 0),
            read.get(table.id, []),
        )
        for table in tables
    ]
    return [
        replace(
            one,
            owner=owners.get(table.relid or 0),
            settings=table.settings,
            assume_immutable=table.assume_immutable,
            notices=tuple(
                rights.note(policies[o.relid])
                for o in read.get(table.id, [])
                if o.relid in policies
            ),
        )
        for one, table in zip(found, tables, strict=True)
    ]


def _status(
    table: StreamTable, age: timedelta | None, rows: int, pending: int, read: list[Source]
) -> StreamTableStatus:
    return StreamTableStatus(
        table.name, table.schema_name, table.status, table.refresh_mode, table.schedule, rows, table.data_timestamp,
        age.total_seconds() if age is not None else None, table.last_action, table.last_reason, pending,
        table.consecutive_errors, table.last_error,
        tuple(SourceStatus(f"{source.schema}.{source.name}", source.mode, source.reason) for source in read),
        table.transient_errors, table.last_transient_error, table.next_try_at, table.no_data_refreshes,
    )  # fmt: skip


def _pending(app: App, tables: list[StreamTable], read: dict[int, list[Source]]) -> dict[int, int]:
    pairs = [
        (table.id, source, table.frontier)
        for table in tables
        if table.frontier
        for source in read.get(table.id, [])
    ]
    known = {source.relid: source for _, source, _ in pairs}
    asked = [(source.relid, frontier) for _, source, frontier in pairs]
    found = slices.pending(app.conn, asked, cap=_CAP, sources=known)
    waiting = dict[int, int]()
    for (id_, _, _), one in zip(pairs, found, strict=True):
        waiting[id_] = waiting.get(id_, 0) + one.rows
    return waiting


def _sizes(app: App) -> dict[int, int]:
    rows = app.conn.execute(
        "SELECT c.oid::int8, CASE WHEN c.reltuples >= 0 THEN c.reltuples::int8 "
        "ELSE (SELECT n_live_tup FROM pg_stat_user_tables AS s WHERE s.relid = c.oid) END "
        "FROM pg_class AS c JOIN millstream.stream_tables AS t ON t.relid = c.oid"
    )
    return {row[0]: row[1] or 0 for row in rows}


@verb
def history(app: App, name: str, n: int = 20) -> list[HistoryEntry]:
    """Return the last refreshes of a stream table, newest first."""
    if not 0 <= n < 1 << 31:
        raise BadSetting.of("n", n, "a number of refreshes, 0 or more")
    return entries.recent(app.conn, app.named(name).id, n)
