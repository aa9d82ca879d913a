"""An unexpected error names the smallest part of the query that was being planned."""

from __future__ import annotations

import pytest

from millstream.algebra.query_part import noted_part, planning
from millstream.errors import Unsupported


def test_the_innermost_part_is_noted_and_stays() -> None:
    with (
        pytest.raises(ZeroDivisionError) as caught,
        planning(lambda: "the query"),
        planning(lambda: "a sum"),
    ):
        _ = 1 / 0
    assert noted_part(caught.value) == "a sum"


def test_a_refusal_gets_no_note() -> None:
    refusal = Unsupported.construct("x", reason="y", way_round="z")
    with pytest.raises(Unsupported) as caught, planning(lambda: "the query"):
        raise refusal
    assert noted_part(caught.value) == ""


def test_without_an_error_the_part_is_never_printed() -> None:
    def printed() -> str:
        raise AssertionError("the part was printed")

    with planning(printed):
        pass
