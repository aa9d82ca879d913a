"""Expressions over one item, and over two."""

from __future__ import annotations

from tests.testing.queries.conftest import aliases_of, makers, source_of

from millstream.testing.queries.expressions import across, across_int, made, of_family, product
from millstream.testing.queries.terms import free
from millstream.testing.randomness import KINDS


def test_an_expression_over_a_term_names_its_item_and_has_a_known_kind() -> None:
    for m in makers():
        for term in free(m.table().columns):
            found = made(m, term)
            assert aliases_of(found.sql) == {term.alias}
            assert found.kind in KINDS


def test_expressions_across_name_two_items() -> None:
    for m in makers():
        source = source_of(m, 3)
        for generate in (across, across_int, product):
            found = aliases_of(generate(m, source).sql)
            assert len(found) == 2
            assert found <= {item.alias for item in source.items}


def test_a_term_of_a_family_is_of_that_family() -> None:
    for m in makers():
        assert of_family(m, source_of(m), "text", "text").family == "text"
        assert of_family(m, source_of(m), "int", "int4").family == "int"
