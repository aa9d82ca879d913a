"""Which log events a command shows, on stderr.

    --verbose   all of them; with --json each is a JSON document
    otherwise   warnings and errors, but for those that the error at the command's end tells
    --json      none: stderr carries the error at the command's end, and nothing else

What Java prints is an event, too. The error at the command's end tells it: when Java ends by
itself, that is the reason, and no other place has it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.errors import MillstreamError
from millstream.observe import log

JAVA = "Java says"

# The last lines that Java has printed while a command ran.
_heard = deque[str](maxlen=20)


@contextmanager
def shown(*, verbose: bool, as_json: bool) -> Iterator[logging.Handler]:
    """Show the events of a command for the length of the `with` block, by this handler."""
    _heard.clear()
    # What other libraries log (Py4J, a traceback at each Ctrl-C) would be printed if nobody took
    # it.
    logging.getLogger().addHandler(nobody := logging.NullHandler())
    handler = log.show(logging.DEBUG if verbose else logging.WARNING, as_json=as_json)
    handler.addFilter(_hear)
    if not verbose:
        handler.addFilter(lambda record: not as_json and _is_news(record))
    try:
        yield handler
    finally:
        log.hide(handler)
        logging.getLogger().removeHandler(nobody)


def with_java(error: MillstreamError) -> MillstreamError:
    """Return the error with Java's last output added to its detail."""
    unsaid = [line for line in _heard if line not in error.detail]
    if unsaid:
        error.detail = "\n".join([*filter(None, [error.detail]), "Java said:", *unsaid])
    return error


def _hear(record: logging.LogRecord) -> bool:
    if record.getMessage() == JAVA:
        _heard.append(_fields(record)["line"])
    return True


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for an event with an error's code: that error is raised and printed too."""
    return record.getMessage() != JAVA and "code" not in _fields(record)


def _fields(record: logging.LogRecord) -> dict[str, str]:
    fields: dict[str, str] = getattr(record, "fields", {})
    return fields
