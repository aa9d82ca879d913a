"""Splitting a query into blocks: which operators get one of their own."""

from __future__ import annotations

import pytest
from tests.compiler.conftest import planned

ROW_NUMBER = 'row_number() OVER (PARTITION BY r."g0" ORDER BY r."g1")'


def kinds(text: str, columns: str, **types: str) -> list[str]:
    """What each block is: an aggregate, rows that are materialized, or neither."""
    blocks = planned(text, columns, {ROW_NUMBER: "int8"})
    return [block.kind for block in blocks]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("SELECT t.id FROM public.t JOIN public.u ON u.a = t.a WHERE t.b > 1", "id", ["none"]),
        ("SELECT t.a, count(*) AS n FROM public.t GROUP BY t.a HAVING count(*) > 1", "a n", ["aggregate"]),
        ("SELECT t.id FROM public.t ORDER BY t.a LIMIT 3", "id", ["limit", "none"]),
        (
            "SELECT t.id, row_number() OVER (PARTITION BY t.a ORDER BY t.b) AS n FROM public.t", "id n",
            ["window", "none"],
        ),
        (
            "SELECT max(q.n) AS m FROM (SELECT t.a, count(*) AS n FROM public.t GROUP BY t.a) q", "m",
            ["aggregate", "aggregate"],
        ),
    ],
)  # fmt: skip
def test_a_stateful_operator_below_another_is_a_block_of_its_own(
    text: str, columns: str, expected: list[str]
) -> None:
    assert kinds(text, columns) == expected


def test_equal_operators_share_a_block() -> None:
    counts = "(SELECT t.a, count(*) AS n FROM public.t GROUP BY t.a)"
    blocks = planned(f"SELECT q.a FROM {counts} q JOIN {counts} r ON r.a = q.n", "a")
    assert len(blocks) == 2
    assert [one.of for one in blocks[-1].inputs()] == ["block 0", "block 0"]


def test_blocks_are_numbered_from_the_inside_out() -> None:
    blocks = planned("SELECT t.id FROM public.t ORDER BY t.a LIMIT 3", "id")
    assert [block.position for block in blocks] == [0, 1]
