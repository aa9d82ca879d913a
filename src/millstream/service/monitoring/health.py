"""The verb health: is every stream table fresh, is every source fully captured, and how far does
WAL capture lag?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from millstream.capture.trigger import inventory
from millstream.catalog import sources, stream_tables, upstreams
from millstream.catalog.sources import Source
from millstream.catalog.stream_tables import StreamTable
from millstream.catalog.target import write_guard
from millstream.scheduler.cadence import Cadence
from millstream.service.app import App
from millstream.service.monitoring import repair_hint
from millstream.service.monitoring.doctor import Check
from millstream.service.verb import verb


@verb
def health(app: App) -> list[Check]:
    """Check each stream table, each source and the slot. Never starts Spark."""
    every = stream_tables.every(app.conn)
    behind = _behind(app, every)
    unguarded = _unguarded(app, every)
    ages = stream_tables.staleness(app.conn)
    tables = [
        unguarded.get(table.id) or _table(table, ages.get(table.id), behind.get(table.id, ""))
        for table in every
    ]
    known = sources.every(app.conn)
    lacking = inventory.gaps_of(app.conn, known)
    changed = sources.drift(app.conn)
    captured = []
    for source in known:
        trouble = [
            *lacking[source.relid],
            *([changed[source.relid]] if source.relid in changed else []),
        ]
        captured.append(_source(app, source, "; ".join(trouble)))
    return [*tables, *captured, *_slot(app)]


_WAYS = {
    "TRIGGER": "captured by triggers",
    "TRANSITIONING": "moving to WAL",
    "WAL": "captured from WAL",
}


def _source(app: App, source: Source, trouble: str) -> Check:
    name = f"source {source.schema}.{source.name}"
    if trouble:
        return Check(
            name,
            False,
            trouble,
            repair_hint.hint(app.conn, source.relid, app.settings.trusted_roles),
        )
    since = (
        f" since {source.mode_changed_at:%Y-%m-%d %H:%M:%S} UTC" if source.mode_changed_at else ""
    )
    return Check(name, True, f"{_WAYS[source.mode]}{since}", source.reason or "")


def _slot(app: App) -> list[Check]:
    """Check how far the slot lags; name the session that makes the server retain WAL, if it is not
    Millstream's.
    """
    query = "SELECT slot_name, confirmed_lag_bytes, restart_lag_bytes, held_by, trouble FROM millstream.slot_health()"
    return [_check_lag(app, SlotLag(*row)) for row in app.conn.execute(query)]


@dataclass(frozen=True)
class SlotLag:
    """A row of `millstream.slot_health()`."""

    slot: str
    confirmed: int | None
    """Bytes of WAL that Millstream has not confirmed."""
    retained: int | None
    """Bytes of WAL that the server retains for the slot."""
    held_by: str | None
    """The session because of which the server retains confirmed WAL."""
    trouble: str | None


def _check_lag(app: App, lag: SlotLag) -> Check:
    name = f"slot {lag.slot}"
    if lag.trouble:
        return Check(
            name,
            False,
            lag.trouble,
            "If a service runs, it returns the sources to trigger capture.",
        )
    found = f"{_size(lag.confirmed or 0)} behind, the server keeps {_size(lag.retained or 0)} of WAL for it"
    if lag.held_by:
        return Check(name, None, found, f"Held by {lag.held_by}, not by Millstream.")
    return Check(name, (lag.confirmed or 0) <= app.settings.slot_lag_warning, found)


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f}MB"


def _behind(app: App, tables: Sequence[StreamTable]) -> dict[int, str]:
    """Return, for each stream table whose rows are older than its last refresh, the older one that
    it reads.
    """
    held = [
        one
        for one in tables
        if one.cut_at and one.data_timestamp and one.data_timestamp < one.cut_at
    ]
    found = {
        one.id: upstreams.older_than_cut(app.conn, [one.id], one.cut_at)
        for one in held
        if one.cut_at
    }
    return {
        id: f"Stream tables that it reads are older: {'; '.join(map(str, found[id][id]))}."
        for id in found
        if found[id]
    }


def _unguarded(app: App, tables: Sequence[StreamTable]) -> dict[int, Check]:
    """Return a check for each stream table whose guard was removed or changed."""
    relids = [table.relid for table in tables if table.is_guarded and table.relid]
    wrong = (
        write_guard.broken_guards(app.conn, relids) if not app.settings.allow_direct_writes else {}
    )
    hint = (
        "Others may have written to it. The next refresh restores the guard and repairs the rows."
    )
    return {
        table.id: Check(_title(table), False, f"its guard is {wrong[table.relid]}", hint)
        for table in tables
        if table.relid in wrong
    }


def _title(table: StreamTable) -> str:
    return f"stream table {table.schema_name}.{table.name}"


def _table(table: StreamTable, age: timedelta | None, behind: str) -> Check:
    name = _title(table)
    if table.status in ("SUSPENDED", "ERROR"):
        see = f"See: millstream history {table.typed}"
        return Check(name, False, f"{table.status}: {table.last_error or 'by request'}", see)
    if failed := _last_failure(table):
        return Check(name, False, f"the last refresh failed: {failed[0]}", failed[1])
    if age is None:
        return Check(name, None, "not filled yet", f"Refresh it: millstream refresh {table.typed}")
    every = Cadence.parse(table.schedule).every
    # Stale: older than twice the schedule, plus a second for the refresh itself.
    late = every is not None and age > 2 * every + timedelta(seconds=1) and not behind
    hint = "Check that the service runs (millstream run)." if late else behind
    return Check(
        name, not late, f"{age.total_seconds():.1f} s old, schedule {table.schedule}", hint
    )


def _last_failure(table: StreamTable) -> tuple[str, str] | None:
    """Return how its last refresh failed and what to do, for any schedule; None if it did not fail."""
    see = f"See: millstream history {table.typed}"
    if table.consecutive_errors and table.last_error:
        return _first_line(table.last_error), see
    if table.transient_errors and table.last_transient_error:
        what = f"{_first_line(table.last_transient_error)}, {table.transient_errors} times in a row"
        return (
            what,
            f"It usually passes. The service tries again; to try now: millstream refresh {table.typed}",
        )
    return None


def _first_line(error: str) -> str:
    return error.partition("\n")[0]
