"""Watch freshness: which stream tables are older than their targets, and can the machine meet all
targets?

    age            now - its data timestamp, but at most the time since it was first checked
    late           older than twice its target, and a second
    stale          alert, for each stream table that is late, with the cause
    falling_behind alert of the service: stream tables are late only because refreshes take too long

    cause          failing      its last refresh failed or was skipped, and will be tried again
                   held back    it reads a stream table whose rows are older: suspended, manual, failing
                   behind       none of these: refreshes take too long, or wait for others

An alert is sent once for each episode. An episode is over when nothing was late for a while. So if
a stream table with a target of one second is refreshed every third second, it is late at some
checks and not at others, and all of them are one episode.

Not watched are suspended stream tables, those that are not populated, and those whose schedule has
no target (manual, calculated, continuous). Time before the service started, or before a stream
table was resumed, does not count.

>>> from datetime import UTC
>>> noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
>>> table = Watched(1, "totals", timedelta(seconds=10), as_of=noon)
>>> watch = FreshnessWatch()
>>> [len(watch.look([table], noon + timedelta(seconds=seconds), workers=4)) for seconds in (0, 21, 22, 23)]
[0, 0, 2, 0]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from millstream.catalog.stream_tables import StreamTable
from millstream.postgres.notifications import Fact
from millstream.scheduler.cadence import Cadence
from millstream.scheduler.due import REFRESHED

GRACE = timedelta(seconds=1)
# An episode ends after so many targets without lateness, and at the earliest after this time.
CALM_TARGETS = 4
CALM_AT_LEAST = timedelta(seconds=10)
# The most stream tables that an alert names.
NAMED = 10

Cause = Literal["failing", "held back", "behind"]


@dataclass(frozen=True)
class Watched:
    """The freshness of a stream table whose schedule has a target."""

    id: int
    name: str
    """Schema and name."""
    target: timedelta
    """How old its rows may become."""
    as_of: datetime
    """The moment that its rows are as of."""
    cause: Cause = "behind"
    """Why it is late, if it is."""
    error: str = ""
    """What its last refresh failed with."""
    seconds: float = 0.0
    """How long a refresh of it is expected to take; 0 if that is unknown."""
    is_cron: bool = False
    """True if its schedule is a cron expression."""

    def __post_init__(self) -> None:
        if self.target <= timedelta(0):
            raise ValueError(f"a target of {self.target} cannot be kept")


@dataclass(frozen=True)
class FreshnessAlert:
    """An alert to send: `notifications.alert(conn, alert.kind, **alert.facts)`."""

    kind: Literal["stale", "falling_behind"]
    facts: dict[str, Fact]


def watched(
    table: StreamTable, *, looked_at: datetime | None = None, seconds: float = 0.0
) -> Watched | None:
    """Return the freshness of a stream table; None if it is not watched.

    `looked_at` is when its sources were last found to have no changes since its last refresh.
    """
    if table.status not in REFRESHED or table.data_timestamp is None or table.cut_at is None:
        return None
    cadence = Cadence.parse(table.schedule)
    target = _target(cadence, table.cut_at)
    if target is None:
        return None
    is_held_back = table.data_timestamp < table.cut_at
    as_of = (
        table.data_timestamp
        if is_held_back or looked_at is None
        else max(table.data_timestamp, looked_at)
    )
    cause: Cause = "failing" if table.failed_tries else "held back" if is_held_back else "behind"
    error = (table.last_error or table.last_transient_error or "") if cause == "failing" else ""
    first_line = error.partition("\n")[0]
    return Watched(
        table.id, table.qualified, target, as_of, cause, first_line, seconds, cadence.kind == "cron"
    )


def _target(cadence: Cadence, last: datetime) -> timedelta | None:
    """Return how old rows may become.

    For cron this is the time between two firings, even if the last refresh was just before one.
    """
    if cadence.kind == "cron" and (firing := cadence.due_at(last)):
        return cadence.target(firing)
    return cadence.target(last)


@dataclass
class _Episode:
    """The last time at which a stream table was late."""

    late_at: datetime
    calm: timedelta
    """It is over when nothing was late for so long."""

    def is_over(self, now: datetime) -> bool:
        return now - self.late_at > self.calm


def _is_new(episode: _Episode | None, late_since: datetime) -> bool:
    """Return True if lateness since then begins a new episode."""
    return episode is None or episode.is_over(late_since)


@dataclass
class FreshnessWatch:
    """The late stream tables, and the alerts that were sent for them."""

    since: dict[int, datetime] = field(default_factory=dict)
    """When each stream table was first checked."""
    stale: dict[int, _Episode] = field(default_factory=dict)
    behind: _Episode | None = None

    def look(
        self, tables: Iterable[Watched], now: datetime, *, workers: int
    ) -> list[FreshnessAlert]:
        """Return the alerts to send; `tables` are all watched stream tables, `workers` the number
        of parallel refreshes.
        """
        seen = {table.id: table for table in tables}
        self.since = {id: self.since.get(id, now) for id in seen}
        late = {table: since for table in seen.values() if (since := self._late_since(table)) < now}
        alerts = list[FreshnessAlert]()
        for table, since in late.items():
            if _is_new(self.stale.get(table.id), since):
                alerts.append(_stale(table, now))
            self.stale[table.id] = _Episode(now, _calm(table.target))
        self.stale = {
            id: one for id, one in self.stale.items() if id in seen and not one.is_over(now)
        }
        behind = [table for table in late if table.cause == "behind"]
        if behind:
            if _is_new(self.behind, min(late[table] for table in behind)):
                alerts.append(_falling_behind(behind, list(seen.values()), now, workers))
            self.behind = _Episode(now, max(_calm(table.target) for table in behind))
        return alerts

    def _late_since(self, table: Watched) -> datetime:
        """Return the time at which a stream table becomes or became late."""
        return max(table.as_of, self.since[table.id]) + 2 * table.target + GRACE


def load(tables: Iterable[Watched]) -> float:
    """Return how many workers are needed to meet all targets, if every refresh has changes.

    >>> noon = datetime(2024, 1, 1, 12)
    >>> load([Watched(id, "t", timedelta(seconds=2), noon, seconds=1.0) for id in (1, 2, 3)])
    1.5
    """
    return sum(table.seconds / table.target.total_seconds() for table in tables)


def _calm(target: timedelta) -> timedelta:
    return max(CALM_TARGETS * target, CALM_AT_LEAST)


def _stale(table: Watched, now: datetime) -> FreshnessAlert:
    facts: dict[str, Fact] = {
        "stream_table": table.name, "age_seconds": round((now - table.as_of).total_seconds(), 1),
        "target_seconds": table.target.total_seconds(), "data_timestamp": table.as_of.isoformat(),
        "cause": table.cause,
    }  # fmt: skip
    if table.error:
        facts["error"] = table.error
    return FreshnessAlert("stale", facts)


def _falling_behind(
    behind: Sequence[Watched], all_tables: Sequence[Watched], now: datetime, workers: int
) -> FreshnessAlert:
    worst_first = sorted(behind, key=lambda table: (table.as_of - now) / table.target)
    needed = load(all_tables)
    facts: dict[str, Fact] = {
        "stream_tables": [table.name for table in worst_first[:NAMED]], "count": len(behind),
        "age_seconds": round((now - worst_first[0].as_of).total_seconds(), 1),
        "workers": workers, "workers_needed": round(needed, 1), "hint": _hint(needed, workers),
    }  # fmt: skip
    return FreshnessAlert("falling_behind", facts)


def _hint(needed: float, workers: int) -> str:
    if needed > workers:
        return "Give these stream tables longer schedules, or raise max_concurrent_refreshes if the machine has room."
    return "Give the stream tables whose refreshes take longer than their schedule a longer one."
