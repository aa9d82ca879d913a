"""Name the part of a query that was being planned when something unexpected was raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millstream.errors import MillstreamError


@contextmanager
def planning(part: Callable[[], str]) -> Iterator[None]:
    """Add the part to an unexpected error as a note, unless a smaller part inside it has been noted
    already.
    """
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        if not noted_part(error):
            error.add_note(part())
        raise


def noted_part(error: BaseException) -> str:
    """Return the part that was noted on an error; empty if there is none."""
    notes: list[str] = getattr(error, "__notes__", [])
    return notes[0] if notes else ""
