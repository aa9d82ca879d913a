"""The verb health: does every stream table keep up, and is every source captured whole?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from millstream.capture import inventory
from millstream.catalog import sources, stream_tables
from millstream.catalog.stream_tables import StreamTable
from millstream.schedule.cadence import Cadence
from millstream.service.app import App
from millstream.service.doctor import Check
from millstream.service.verb import verb


@verb
def health(app: App) -> list[Check]:
    """One check per stream table and per source. Never starts Spark."""
    now = datetime.now(UTC)
    tables = [_table(table, now) for table in stream_tables.every(app.conn)]
    known = sources.every(app.conn)
    lacking = inventory.gaps_of(app.conn, known)
    changed = sources.drift(app.conn)
    captured = []
    for source in known:
        trouble = [*lacking[source.relid], *([changed[source.relid]] if source.relid in changed else [])]
        found = "; ".join(trouble) or f"captured by {source.mode.lower()}"
        captured.append(Check(f"source {source.schema}.{source.name}", not trouble, found, _REPAIR if trouble else ""))
    return tables + captured


_REPAIR = "The next refresh sets capture up again and reinitialises what reads it."


def _table(table: StreamTable, now: datetime) -> Check:
    name = f"stream table {table.schema_name}.{table.name}"
    if table.status in ("SUSPENDED", "ERROR"):
        return Check(name, False, f"{table.status}: {table.last_error or 'by request'}", "See: millstream history")
    if table.data_timestamp is None:
        return Check(name, None, "not filled yet", "Refresh it.")
    age, every = now - table.data_timestamp, Cadence.parse(table.schedule).every
    # Twice the schedule, and a second for the work itself: then it no longer keeps up.
    late = every is not None and age > 2 * every + timedelta(seconds=1)
    hint = "Is a scheduler running (tick)?" if late else ""
    return Check(name, not late, f"{age.total_seconds():.1f} s old, schedule {table.schedule}", hint)
