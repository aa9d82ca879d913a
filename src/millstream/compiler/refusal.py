"""Refusals as values: what cannot be planned is returned, and raised only where nothing is left to
choose.

    placed = placer.place(expression, "carry")     Placement | Unsupported
    collect(map(placer.place, expressions))        all placements, or the first refusal
    accepted(placed)                               the placement; raises the refusal

So a choice between strategies compares values, and the refusal of a strategy that is not taken is
the reason that `explain` prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from millstream.errors import Unsupported

Found = TypeVar("Found")


def accepted(found: Found | Unsupported) -> Found:
    """Return what was found; raise the refusal.

    >>> accepted(7)
    7
    """
    if isinstance(found, Unsupported):
        raise found
    return found


def collect(found: Iterable[Found | Unsupported]) -> list[Found] | Unsupported:
    """Return everything that was found, or the first refusal; what follows a refusal is not looked
    for.

    >>> collect(iter([1, 2]))
    [1, 2]
    """
    every = list[Found]()
    for one in found:
        if isinstance(one, Unsupported):
            return one
        every.append(one)
    return every
