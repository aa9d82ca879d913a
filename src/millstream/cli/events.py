"""Which log events a command shows, on stderr.

    --verbose   all of them; with --json each is a JSON document
    otherwise   warnings and errors, except those that the error at the command's end repeats
    --json      none: stderr has only the error at the command's end

The output of Java is an event, too. It is added to the error at the command's end, because if Java
has ended by itself, only its output gives the reason.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.errors import MillstreamError
from millstream.observe import log

JAVA = "Java says"

# The last lines that Java printed during the command.
_heard = deque[str](maxlen=20)


@contextmanager
def shown(*, verbose: bool, as_json: bool) -> Iterator[logging.Handler]:
    """Show the events of a command for the length of the `with` block, by this handler."""
    _heard.clear()
    # Log messages of other libraries (Py4J, a traceback at each Ctrl-C) would be printed if there
    # were no handler.
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
