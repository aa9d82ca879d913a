"""FROM clauses: every item is there once."""

from __future__ import annotations

from collections import Counter

from sqlglot import exp
from tests.testing.queries.conftest import makers

from millstream.algebra.dialect import parsed
from millstream.testing.queries.joins import commas, source


def test_each_item_is_in_the_text_once_and_under_its_own_alias() -> None:
    for m in makers(depth=0):
        found = source(m)
        tables = parsed(f"SELECT {found.text()}").find_all(exp.Table)
        assert Counter(table.alias for table in tables) == Counter(
            item.alias for item in found.items
        )
        assert 1 <= len(found.items) <= 4


def test_the_first_item_is_null_extended_only_by_a_right_or_full_join() -> None:
    for m in makers(depth=0):
        found = source(m)
        assert found.padded == (" RIGHT JOIN " in found.sql or " FULL JOIN " in found.sql)


def test_items_side_by_side_are_joined_in_where() -> None:
    for m in makers(cased=True):
        found = commas(m, [m.table(), m.table(), m.table()])
        assert " JOIN " not in found.sql
        assert len(found.conditions) == 2
