"""Lengths of time as people write them: `200ms`, `1s`, `5m`, `1h`, `2d`.

One number and one unit, nothing else. The printed form uses the largest unit that divides evenly.

>>> parse("1500ms"), printed(parse("1500ms")), printed(parse("60s"))
(datetime.timedelta(seconds=1, microseconds=500000), '1500ms', '1m')
"""

from __future__ import annotations

import re
from datetime import timedelta

# Largest first: the printed form takes the first that divides.
UNITS: dict[str, timedelta] = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
EXPECTED = "a number and a unit, such as 500ms, 1s, 5m, 1h or 2d"

_FORM = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d)", re.ASCII)


def parse(text: str) -> timedelta:
    """Read a duration; ValueError says what was expected."""
    match = _FORM.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"not a duration: {text!r}; expected {EXPECTED}")
    return int(match[1]) * UNITS[match[2]]


def printed(duration: timedelta) -> str:
    """The shortest exact form; what is finer than a millisecond is cut off."""
    for unit, length in UNITS.items():
        if duration and duration % length == timedelta(0):
            return f"{duration // length}{unit}"
    return f"{duration // UNITS['ms']}ms"
