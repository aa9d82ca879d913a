"""Conditions over one item, and between two."""

from __future__ import annotations

from tests.testing.queries.conftest import aliases_of, expression, makers

from millstream.testing.queries.conditions import predicate, tie


def test_a_predicate_names_columns_of_its_item_only() -> None:
    for m in makers():
        table = m.table()
        assert aliases_of(predicate(m, table.columns)) <= {table.alias}


def test_the_time_is_asked_only_where_it_may_be() -> None:
    assert not any("now()" in predicate(m, m.table().columns) for m in makers())
    assert any("now()" in predicate(m, m.table().columns) for m in makers(clock=True))


def test_items_are_always_joined_by_case() -> None:
    for m in makers(cased=True):
        one, other = m.table(), m.table()
        assert tie(m, one, other).startswith(f"{one.alias}.cid = {other.alias}.cid")


def test_a_full_join_has_an_equality_of_both_sides() -> None:
    for m in makers(cased=False):
        one, other = m.table(), m.table()
        text = tie(m, one, other, equal=True)
        assert expression(text) is not None
        assert " = " in text
        assert aliases_of(text) == {one.alias, other.alias}
