"""A choice of the planner names a reason."""

from __future__ import annotations

import pytest

from millstream.algebra.choice import Choice
from millstream.compiler.blocks import choices


def test_it_prints_what_and_why() -> None:
    assert str(Choice("stores rows", "Spark cannot")) == "stores rows, because Spark cannot"


@pytest.mark.parametrize(("what", "why"), [("", "Spark cannot"), ("stores rows", "")])
def test_one_without_a_reason_cannot_exist(what: str, why: str) -> None:
    with pytest.raises(ValueError, match="what and why"):
        Choice(what, why)


def test_the_choices_of_the_planner_read_as_one_sentence() -> None:
    all_choices = [value for value in vars(choices).values() if isinstance(value, Choice)]
    assert all_choices
    for choice in all_choices:
        assert choice.what[0].islower()
        assert not choice.why.endswith(".")
