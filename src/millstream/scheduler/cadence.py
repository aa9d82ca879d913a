"""How often a stream table is to be refreshed: its schedule, parsed and printed.

    500ms, 1s, 5m, 1h, 2d                  this long after its last refresh
    */5 * * * *, @hourly                   at the times of a cron expression, in UTC
    CRON_TZ=Europe/Berlin 0 6 * * *        the same in another time zone
    continuous                             again as soon as possible
    calculated                             whenever a stream table that reads it is refreshed
    manual                                 only on request

A schedule is a freshness target. `due_at` is its deadline: the most overdue stream table is
refreshed first.

>>> noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
>>> Cadence.parse("60s").due_at(noon)
datetime.datetime(2024, 1, 1, 12, 1, tzinfo=datetime.timezone.utc)
>>> str(Cadence.parse("@hourly")), Cadence.parse("@hourly").due_at(noon).hour
('@hourly', 13)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from millstream import duration
from millstream.errors import BadSetting

EXPECTED = (
    "a duration such as 500ms, 1s, 5m or 1h, a cron expression such as */5 * * * * or @hourly, "
    "or continuous, calculated or manual"
)

# The names that cron has for these expressions.
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ZONE = "CRON_TZ="
# Ten years: twice this, added to any current time, is still a valid datetime.
LONGEST = timedelta(days=3650)

Kind = Literal["every", "cron", "continuous", "calculated", "manual"]


@dataclass(frozen=True)
class Cadence:
    """A schedule: every so often, by cron, continuous, calculated or manual."""

    kind: Kind
    every: timedelta | None = None
    cron: str = ""
    """The expression as it was given."""
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if (self.kind == "every") != (self.every is not None):
            raise ValueError(
                f"a {self.kind} cadence {'needs' if self.kind == 'every' else 'has no'} length"
            )
        if (self.kind == "cron") != bool(self.cron):
            raise ValueError(
                f"a {self.kind} cadence {'needs' if self.kind == 'cron' else 'has no'} cron expression"
            )
        if self.every is not None and self.every <= timedelta(0):
            raise ValueError("a cadence is longer than nothing")

    @classmethod
    def parse(cls, text: object, *, shortest: timedelta = timedelta(0)) -> Self:
        """Read a schedule; `shortest` is the setting `min_schedule`."""
        if not isinstance(text, str):
            raise BadSetting.of("schedule", text, EXPECTED)
        word = text.strip().lower()
        if word == "manual":
            return cls("manual")
        if word == "continuous":
            return cls("continuous")
        if word == "calculated":
            return cls("calculated")
        if word.startswith(("@", _ZONE.lower())) or len(word.split()) >= 5:
            return cls._parse_cron(text)
        return cls("every", _length(text, max(shortest, duration.UNITS["ms"])))

    @classmethod
    def _parse_cron(cls, text: str) -> Self:
        zone, expression = _split_zone(text)
        try:
            cadence = cls("cron", cron=expression, zone=zone)
            cadence.due_at(datetime(2024, 1, 1, tzinfo=UTC))
        except (CronSimError, StopIteration, ValueError) as error:
            expected = "a cron expression that fires (minute hour day month weekday), such as */5 * * * * or @hourly"
            raise BadSetting.of("schedule", text, expected) from error
        return cadence

    def due_at(self, last: datetime | None) -> datetime | None:
        """Return when the next refresh is due after one at `last`; None if never by itself."""
        if self.kind in ("manual", "calculated"):
            return None
        if last is None:
            return _ALWAYS
        if self.every is not None:
            return last + self.every
        return last if self.kind == "continuous" else self._next_firing(last)

    def due(self, last: datetime | None, now: datetime) -> bool:
        """Return True if a refresh is due at `now` after one at `last`."""
        due_at = self.due_at(last)
        return due_at is not None and due_at <= now

    def target(self, last: datetime) -> timedelta | None:
        """Return how old the rows may become until the next refresh; None if the schedule has no
        target.
        """
        due_at = self.due_at(last)
        return due_at - last if due_at is not None and self.kind != "continuous" else None

    def _next_firing(self, last: datetime) -> datetime:
        expression = _NICKNAMES.get(self.cron.lower(), self.cron)
        firings = CronSim(expression, last.astimezone(ZoneInfo(self.zone)))
        # In the hour that is repeated when clocks are set back, the iteration begins an hour early.
        return next(at for fired in firings if (at := fired.astimezone(UTC)) > last)

    def __str__(self) -> str:
        if self.every is not None:
            return duration.printed(self.every)
        zone = "" if self.zone == "UTC" else f"{_ZONE}{self.zone} "
        return f"{zone}{self.cron}" or self.kind


# Earlier than any refresh: a stream table that is not populated is more overdue than any other.
_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


def _split_zone(text: str) -> tuple[str, str]:
    """Return the time zone and the cron expression of `CRON_TZ=Europe/Berlin 0 6 * * *`."""
    words = text.split()
    if not words[0].upper().startswith(_ZONE):
        return "UTC", " ".join(words)
    zone = words[0][len(_ZONE) :]
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError) as error:
        raise BadSetting.of(
            "schedule", text, "a time zone such as Europe/Berlin after CRON_TZ="
        ) from error
    return zone, " ".join(words[1:])


def _length(text: str, shortest: timedelta) -> timedelta:
    try:
        length = duration.parse(text)
    except ValueError as error:
        raise BadSetting.of("schedule", text, EXPECTED) from error
    if length < shortest:
        raise BadSetting.of(
            "schedule", text, f"{duration.printed(shortest)} or longer (setting min_schedule)"
        )
    if length > LONGEST:
        raise BadSetting.of("schedule", text, f"{duration.printed(LONGEST)} or shorter, or manual")
    return length
