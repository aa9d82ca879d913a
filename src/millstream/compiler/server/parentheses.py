"""Remove parentheses that the server prints but drops when it reads the text.

    x BETWEEN 1 AND 2 AND y    printed as (((x >= 1) AND (x <= 2)) AND y), read as ((x >= 1) AND (x <= 2) AND y)
    x IN (a, b, c)             printed as (((x = a) OR (x = b)) OR (x = c)), read as ((x = a) OR (x = b) OR (x = c))

The server drops the parentheses of an AND that is the first operand of an AND, and likewise for OR.
Without them the text stays the same however often it is read and printed.

>>> remove_parentheses("WHERE ((((x >= 1) AND (x <= 2)) AND y) OR ((a OR b) AND c))")
'WHERE (((x >= 1) AND (x <= 2) AND y) OR ((a OR b) AND c))'
>>> remove_parentheses("((a AND b) = c AND d)")
'((a AND b) = c AND d)'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# A string, a quoted name, or one of the tokens that matter here.
_WORD = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[()]|\b(?:AND|OR)\b""")


@dataclass
class _Group:
    """A pair of parentheses, by the positions of both."""

    start: int
    end: int = 0
    words: set[str] = field(default_factory=set)
    """AND, OR: the operators directly inside, not in inner parentheses."""
    first: _Group | None = None
    """The inner group at its beginning, if there is one."""


def remove_parentheses(text: str) -> str:
    """Return the text without the parentheses that the server would drop."""
    left_out = {place for one in _groups(text) for place in _needless(one, text)}
    return (
        "".join(letter for place, letter in enumerate(text) if place not in left_out)
        if left_out
        else text
    )


def _needless(group: _Group, text: str) -> tuple[int, ...]:
    first = group.first
    if first is None or len(first.words) != 1 or first.words != group.words:
        return ()
    (word,) = first.words
    # In (a AND b) = c AND d the group is no operand of the AND.
    return (first.start, first.end) if text.startswith(f" {word} ", first.end + 1) else ()


def _groups(text: str) -> Iterator[_Group]:
    """Yield all groups, inner ones first."""
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
