"""Rows as bags: what a table holds, and what a change buffer says came and went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice

# Each row as the texts of its columns.
Bag = Counter[tuple[str | None, ...]]


@dataclass(frozen=True)
class BagSlice:
    """What the buffer held between two cuts."""

    came: Bag
    went: Bag
    truncated: int
    changed: int

    @property
    def images(self) -> int:
        return self.came.total() + self.went.total()

    def account_for(self, before: Bag, after: Bag) -> None:
        """Check that the rows before, with the inserted and without the deleted ones, are the rows
        after.
        """
        told, found = before + self.came, after + self.went
        if told == found:
            return
        # Some rows of many: a comparison of whole bags prints them all, and takes as long as that
        # takes.
        lost, extra = found - told, told - found
        what = [f"{lost.total()} changes are missing, such as {_some(lost)}"] if lost else []
        what += [f"{extra.total()} are too many, such as {_some(extra)}"] if extra else []
        raise AssertionError("; ".join(what))


def _some(bag: Bag) -> list[tuple[str | None, ...]]:
    return list(islice(bag, 3))
