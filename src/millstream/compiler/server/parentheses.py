"""Parentheses that the server prints, and does not keep when it reads them.

    x BETWEEN 1 AND 2 AND y    printed as (((x >= 1) AND (x <= 2)) AND y), read as ((x >= 1) AND (x <= 2) AND y)
    x IN (a, b, c)             printed as (((x = a) OR (x = b)) OR (x = c)), read as ((x = a) OR (x = b) OR (x = c))

An AND that an AND begins with is the same without its parentheses, and so is an OR; only there the server leaves them
out. Without them its text stays the same however often it is read.

>>> flat("WHERE ((((x >= 1) AND (x <= 2)) AND y) OR ((a OR b) AND c))")
'WHERE (((x >= 1) AND (x <= 2) AND y) OR ((a OR b) AND c))'
>>> flat("((a AND b) = c AND d)")
'((a AND b) = c AND d)'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# A string, a name in quotes, or what matters.
_WORD = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[()]|\b(?:AND|OR)\b""")


@dataclass
class _Group:
    """What stands in parentheses."""

    start: int
    end: int = 0
    words: set[str] = field(default_factory=set)
    """AND, OR: those that stand in no parentheses further in."""
    first: _Group | None = None
    """The group that it begins with."""


def remove_parentheses(text: str) -> str:
    """The text without them."""
    left_out = {place for one in _groups(text) for place in _needless(one, text)}
    return "".join(letter for place, letter in enumerate(text) if place not in left_out) if left_out else text


def _needless(group: _Group, text: str) -> tuple[int, ...]:
    first = group.first
    if first is None or len(first.words) != 1 or first.words != group.words:
        return ()
    (word,) = first.words
    # Not that of (a AND b) = c AND d.
    return (first.start, first.end) if text.startswith(f" {word} ", first.end + 1) else ()


def _groups(text: str) -> Iterator[_Group]:
    """All groups, each once it is complete."""
    around = [_Group(-1)]
    for word in _WORD.finditer(text):
        if word[0] == "(":
            around.append(_Group(word.start()))
        elif word[0] == ")":
            group = around.pop()
            group.end = word.start()
            if group.start == around[-1].start + 1:
                around[-1].first = group
            yield group
        elif word[0] in ("AND", "OR"):
            around[-1].words.add(word[0])
