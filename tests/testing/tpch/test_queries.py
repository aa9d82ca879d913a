"""The queries of TPC-H as text. Their changes: `test_changes.py`."""

from __future__ import annotations

import pytest

from millstream.testing.tpch.queries import queries


def test_there_are_22_queries_and_the_view_of_one() -> None:
    assert set(queries(1.0)) == {f"q{number}" for number in range(1, 23)} | {"q15_view"}


@pytest.mark.parametrize(
    ("scale", "fraction"), [(1.0, "0.0001000000"), (0.01, "0.0100000000"), (100, "0.0000010000")]
)
def test_the_fraction_of_query_11_is_that_of_the_scale(scale: float, fraction: str) -> None:
    with_fraction = [name for name, query in queries(scale).items() if fraction in query]
    assert with_fraction == ["q11"]


def test_comments_are_left_out() -> None:
    assert not any(
        line.startswith("--") for query in queries(1.0).values() for line in query.splitlines()
    )
