"""Whole queries."""

from __future__ import annotations

import random

from tests.testing.queries.conftest import makers, output_names

from millstream.algebra.dialect import parsed
from millstream.testing.queries import RandomQueries
from millstream.testing.queries.selects import from_clause, null_extended, reordered
from millstream.testing.randomness import random_tables


def words_of(text: str) -> list[str]:
    """Return the words of a query, in no order."""
    return sorted(str(parsed(text)).replace(",", " ").split())


def test_every_query_can_be_read_and_has_columns() -> None:
    for cased in (True, False):
        dice = random.Random(3)
        queries = RandomQueries(random_tables(dice, cased=cased), dice)
        for _ in range(150):
            names = output_names(queries.next().sql)
            assert names


def test_null_extended_queries_have_a_constant_below_an_outer_join() -> None:
    for m in makers():
        text = m.whole(null_extended(m))
        assert "constant" in m.parts
        assert any(f" {kind} JOIN " in text for kind in ("LEFT", "RIGHT", "FULL"))


def test_the_other_order_of_from_names_the_same_items() -> None:
    for m in makers():
        one, other = reordered(m)
        assert one != other
        assert words_of(one) == words_of(other)


def test_a_lateral_item_comes_last() -> None:
    sources = [from_clause(m) for m in makers()]
    assert any("LATERAL" in source.items[-1].sql for source in sources)
    assert not any(
        "LATERAL (" in item.sql for source in sources for item in source.items[:-1] if item.table
    )
