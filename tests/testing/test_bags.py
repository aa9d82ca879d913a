"""Rows as bags: what the buffer says came and went must be the whole difference."""

from __future__ import annotations

from collections import Counter

import pytest

from millstream.testing.bags import Bag, BagSlice

A, B, C = ("a",), ("b",), (None,)


def bag(*rows: tuple[str | None, ...]) -> Bag:
    return Counter(rows)


@pytest.mark.parametrize(
    ("before", "came", "went", "after"),
    [
        (bag(A, A), bag(B), bag(A), bag(A, B)),
        (bag(), bag(C, C), bag(), bag(C, C)),
        # A row that came and went, and was never there at a cut.
        (bag(A), bag(B), bag(B), bag(A)),
    ],
)
def test_what_is_accounted_for_passes(before: Bag, came: Bag, went: Bag, after: Bag) -> None:
    BagSlice(came, went, 0, 0).account_for(before, after)


@pytest.mark.parametrize(
    ("came", "went", "after", "says"),
    [
        (bag(), bag(), bag(A, B), "1 changes are missing"),
        (bag(B, B), bag(), bag(A, B), "1 are too many"),
        (bag(), bag(B), bag(A), "1 changes are missing"),
    ],
)
def test_a_change_that_is_missing_or_counted_twice_is_an_error(
    came: Bag, went: Bag, after: Bag, says: str
) -> None:
    """An image that went and was never there must not be clipped to nothing."""
    with pytest.raises(AssertionError, match=says):
        BagSlice(came, went, 0, 0).account_for(bag(A), after)


def test_images_are_counted_as_often_as_they_stand_there() -> None:
    assert BagSlice(bag(A, A), bag(B), 0, 0).images == 3
