"""Rows as bags: what a table holds, and what a change buffer says came and went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

# Each row as the texts of its columns.
Bag = Counter[tuple[str | None, ...]]


@dataclass(frozen=True)
class Slice:
    """What the buffer held between two cuts."""

    came: Bag
    went: Bag
    truncated: int
    changed: int

    @property
    def images(self) -> int:
        return self.came.total() + self.went.total()
