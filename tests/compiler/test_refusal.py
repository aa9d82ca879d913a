"""Refusals as values: collected, and raised only where nothing is left to choose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.compiler.refusal import accepted, collect
from millstream.errors import Unsupported

REFUSAL = Unsupported.construct("a test", reason="It is one.", way_round="None.")


def test_what_was_found_is_accepted_and_a_refusal_is_raised() -> None:
    assert accepted("x") == "x"
    with pytest.raises(Unsupported) as raised:
        accepted(REFUSAL)
    assert raised.value is REFUSAL


def test_the_first_refusal_is_returned_and_nothing_after_it_is_looked_for() -> None:
    looked_for = list[int]()

    def found() -> Iterator[int | Unsupported]:
        for number in range(4):
            looked_for.append(number)
            yield REFUSAL if number == 1 else number

    assert collect(found()) is REFUSAL
    assert looked_for == [0, 1]
    assert collect(iter([1, 2])) == [1, 2]
