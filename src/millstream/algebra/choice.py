"""A choice of the planner, in words: what it does with a block, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """What the planner has chosen, and why it did not choose what costs less.

    >>> print(Choice("stores the rows of a join", "Spark cannot evaluate f(a.x, b.y)"))
    stores the rows of a join, because Spark cannot evaluate f(a.x, b.y)
    """

    what: str
    why: str

    def __post_init__(self) -> None:
        if not self.what or not self.why:
            raise ValueError("a choice says what and why")

    def __str__(self) -> str:
        return f"{self.what}, because {self.why}"
