"""The verb refresh: one stream table, all of them, or those that are due."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from millstream.capture.transition import transitions
from millstream.catalog import history, stream_tables
from millstream.catalog.history import Initiator
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import MillstreamError
from millstream.refresh.report import RefreshReport
from millstream.scheduler.dependencies import recorded_graph
from millstream.scheduler.due import due, refreshable
from millstream.scheduler.pulled import with_pulled
from millstream.scheduler.round import refresh_tables
from millstream.service.app import App
from millstream.service.verb import verb

# Seconds between two removals of old history entries.
PRUNE_EVERY = 3600.0


@verb
def refresh(
    app: App, name: str, *, full: bool = False, initiated_by: Initiator = "MANUAL"
) -> RefreshReport:
    """Refresh one stream table now, and before it, in the same cut, the stream tables that it
    reads, to any depth.

    If one of those is suspended or fails, it keeps its rows; the report then says so, and has its
    older data timestamp.
    """
    table = app.named(name)
    upstreams = upstreams_of(app, table)
    outcome = _with_upstreams(app, table, upstreams, initiated_by, full=full)
    now_read = upstreams_of(app, table)
    new = {upstream.id for upstream in now_read} - {upstream.id for upstream in upstreams}
    if new and isinstance(outcome, RefreshReport):
        # The stream table was planned again during the refresh, and now reads other stream tables.
        outcome = _with_upstreams(app, table, now_read, initiated_by, full=full)
    return _reports([outcome])[0]


@verb
def refresh_all(app: App) -> list[RefreshReport]:
    """Refresh every stream table that is not suspended, at one cut."""
    return _reports(refresh_tables(app, refreshable(stream_tables.every(app.conn)), "MANUAL"))


@verb
def tick(app: App) -> list[RefreshReport]:
    """Refresh the stream tables that are due, and their upstreams, at one cut.

    Return the reports of those that succeeded; errors of the others are recorded.
    """
    tables, now = stream_tables.every(app.conn), datetime.now(UTC)
    by_id = {table.id: table for table in tables}
    chosen = with_pulled(due(tables, now), by_id, recorded_graph(app.conn), now)
    outcomes = refresh_tables(app, chosen, "SCHEDULER")
    transitions.advance(app)
    _prune_history(app)
    return [outcome for outcome in outcomes if isinstance(outcome, RefreshReport)]


def _prune_history(app: App) -> None:
    """Remove old entries of the history, once an hour."""
    if time.monotonic() - app.pruned_history_at > PRUNE_EVERY:
        history.prune(app.conn, app.settings.history_retention)
        app.pruned_history_at = time.monotonic()


def upstreams_of(app: App, table: StreamTable) -> list[StreamTable]:
    """Return the stream tables that this one reads, to any depth, and that may be refreshed with
    it.
    """
    ids = recorded_graph(app.conn).upstreams(table.id) - {table.id}
    return refreshable(list(stream_tables.get_all(app.conn, sorted(ids)).values()))


def _with_upstreams(
    app: App,
    table: StreamTable,
    upstreams: Sequence[StreamTable],
    initiated_by: Initiator,
    *,
    full: bool,
) -> RefreshReport | MillstreamError:
    recompute = frozenset({table.id}) if full else frozenset[int]()
    return refresh_tables(app, [*upstreams, table], initiated_by, full=recompute)[-1]


def _reports(outcomes: Sequence[RefreshReport | MillstreamError]) -> list[RefreshReport]:
    """Return all reports, or raise the first error."""
    for outcome in outcomes:
        if isinstance(outcome, MillstreamError):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, RefreshReport)]
