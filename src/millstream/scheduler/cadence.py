"""How often a stream table wants to be refreshed: its schedule, read and printed.

    500ms, 1s, 5m, 1h, 2d    so long after its last refresh it is due again
    continuous               due at every tick
    manual                   never due; refreshed when someone asks

Cron expressions and `calculated` need the scheduler and are refused until it is there: a schedule
that is accepted and never kept would be a lie.

>>> cadence = Cadence.parse("60s")
>>> str(cadence), cadence.due(None, datetime(2024, 1, 1))
('1m', True)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Self

from millstream import duration
from millstream.errors import BadSetting

EXPECTED = "a duration such as 500ms, 1s, 5m or 1h, or continuous, or manual"


@dataclass(frozen=True)
class Cadence:
    """A schedule: `every` so often, `continuous` or `manual`."""

    kind: Literal["every", "continuous", "manual"]
    every: timedelta | None = None

    def __post_init__(self) -> None:
        if (self.kind == "every") != (self.every is not None):
            raise ValueError(f"a {self.kind} cadence {'needs' if self.kind == 'every' else 'has no'} length")
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
        _refuse_what_is_not_kept_yet(word)
        return cls("every", _length(text, max(shortest, duration.UNITS["ms"])))

    def due(self, last: datetime | None, now: datetime) -> bool:
        """Is a refresh due at `now`, the last one having been at `last`?"""
        if self.every is None:
            return self.kind == "continuous"
        return last is None or now - last >= self.every

    def __str__(self) -> str:
        return self.kind if self.every is None else duration.printed(self.every)


def _length(text: str, shortest: timedelta) -> timedelta:
    try:
        length = duration.parse(text)
    except ValueError as error:
        raise BadSetting.of("schedule", text, EXPECTED) from error
    if length < shortest:
        raise BadSetting.of("schedule", text, f"{duration.printed(shortest)} or longer (setting min_schedule)")
    return length


def _refuse_what_is_not_kept_yet(word: str) -> None:
    if word == "calculated":
        raise BadSetting.of("schedule", word, f"{EXPECTED}; calculated schedules come with the scheduler")
    if word.startswith("@") or len(word.split()) >= 5:
        raise BadSetting.of("schedule", word, f"{EXPECTED}; cron expressions come with the scheduler")
