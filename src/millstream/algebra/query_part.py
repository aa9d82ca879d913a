"""Name the part of a query that was being planned when something unexpected was raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millstream.errors import MillstreamError


@contextmanager
def planning(part: Callable[[], str]) -> Iterator[None]:
    """Note the part on an unexpected error, unless a smaller part of it has been noted."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        if not noted(error):
            error.add_note(part())
        raise


def noted(error: BaseException) -> str:
    """The part that was noted; empty if none was."""
    notes: list[str] = getattr(error, "__notes__", [])
    return notes[0] if notes else ""
