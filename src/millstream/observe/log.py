"""Log events with fields: `log.info("refreshed", table=name, rows=n)`.

    ERROR    rows may be wrong, or a table has stopped
    WARNING  unexpected, recovered
    INFO     a state changed
    DEBUG    a step of the work

An event is a short fixed text, what varies is a field, so that logs can be searched and counted.
The events go through Python's own `logging` under the name `millstream`: a program that embeds us
configures them there, and finds the fields in `record.fields`. The command line calls `show`.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

_LOGGER = logging.getLogger("millstream")
_LOGGER.addHandler(logging.NullHandler())


# Fields are of any type; they are printed with str().
def debug(event: str, **fields: Any) -> None:
    """Note a step of the work."""
    _emit(logging.DEBUG, event, fields)


def info(event: str, **fields: Any) -> None:
    """Note that a state changed."""
    _emit(logging.INFO, event, fields)


def warning(event: str, **fields: Any) -> None:
    """Note something unexpected that was recovered from."""
    _emit(logging.WARNING, event, fields)


def error(event: str, **fields: Any) -> None:
    """Note that rows may be wrong, or that a table has stopped."""
    _emit(logging.ERROR, event, fields)


def _emit(level: int, event: str, fields: dict[str, Any]) -> None:
    if _LOGGER.isEnabledFor(level):
        # The event is given as an argument: a % in it is no format.
        _LOGGER.log(level, "%s", event, extra={"event": event, "fields": fields}, stacklevel=3)


class Text(logging.Formatter):
    """For people: `12:03:04.512 INFO refreshed table=totals rows=3`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format an event as one line; values with spaces are quoted."""
        at = datetime.fromtimestamp(record.created).isoformat(sep=" ", timespec="milliseconds")[11:]
        fields = getattr(record, "fields", {})
        parts = [
            at,
            record.levelname,
            record.getMessage(),
            *(f"{k}={_word(v)}" for k, v in fields.items()),
        ]
        return " ".join(parts)


class Json(logging.Formatter):
    """For programs: one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format an event as JSON: time, level and event, then the fields under their own names."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"at": at, "level": record.levelname, "event": record.getMessage()}
        return json.dumps(
            head | {"fields": getattr(record, "fields", {})}, default=str, ensure_ascii=False
        )


def show(
    level: int = logging.INFO, *, as_json: bool = False, stream: TextIO | None = None
) -> logging.Handler:
    """Print events of this level and above, on stderr unless told otherwise; `hide` ends it."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Json() if as_json else Text())
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(level)
    return handler


def hide(handler: logging.Handler) -> None:
    """Undo a `show`."""
    _LOGGER.removeHandler(handler)
    _LOGGER.setLevel(logging.NOTSET)


def _word(value: object) -> str:
    text = str(value)
    is_quoted = not text or any(c.isspace() or c == '"' for c in text)
    return printable(json.dumps(text, ensure_ascii=False) if is_quoted else text)


def printable(text: str) -> str:
    """Return a text for a terminal: what would control the terminal is escaped, but for line ends.

    Any role may give a table a name with escape sequences in it.

    >>> printable("totals\x1b[2J")
    'totals\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )
