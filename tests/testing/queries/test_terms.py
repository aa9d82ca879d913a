"""Terms, items and FROM clauses."""

from __future__ import annotations

import pytest

from millstream.testing.queries.terms import (
    FromSource,
    Item,
    RandomTerm,
    comparable,
    free,
    kind_of_sum,
    literal,
    told_apart,
)


def item(alias: str) -> Item:
    columns = tuple(RandomTerm(f"{alias}.{name}", "int4", alias) for name in ("cid", "j"))
    return Item(f"t AS {alias}", alias, columns)


def test_a_null_extended_source_has_a_row_if_any_of_its_items_has_one() -> None:
    assert FromSource("", (item("a"), item("b"))).case == "a.cid"
    assert FromSource("", (item("a"), item("b")), padded=True).case == "coalesce(a.cid, b.cid)"
    assert FromSource("", (item("a"),), padded=True).case == "a.cid"
    assert FromSource("", ()).case == ""


def test_conditions_that_are_empty_are_left_out() -> None:
    source = FromSource("t AS a", (item("a"),), ("a.j = 1",))
    assert source.text("", "a.j > 2") == "FROM t AS a WHERE a.j = 1 AND a.j > 2"
    assert FromSource("t AS a", ()).text("") == "FROM t AS a"


def test_the_case_is_not_free() -> None:
    assert [term.name for term in free(item("a").columns)] == ["j"]


@pytest.mark.parametrize(
    ("one", "other", "operator", "answer"),
    [
        ("int4", "numeric", "<", True),
        ("int4", "text", "=", False),
        ("text", "varchar", "=", True),
        ("text", "ctext", "=", False),
        ("text", "text", "<", False),
        ("ctext", "ctext", "<", True),
        ("jsonb", "jsonb", "=", False),
    ],
)
def test_values_are_compared_where_postgresql_and_spark_agree(
    one: str, other: str, operator: str, answer: bool
) -> None:
    assert comparable(RandomTerm("a", one), RandomTerm("b", other), operator) is answer


def test_sums_are_wider_than_their_terms() -> None:
    assert kind_of_sum(RandomTerm("a", "int4")) == "int8"
    assert kind_of_sum(RandomTerm("a", "int8")) == "numeric"


def test_equal_numerics_that_print_differently_are_not_distinguished_by_zeros() -> None:
    assert told_apart(RandomTerm("a.n", "numeric")) == "trim_scale(a.n)"
    assert told_apart(RandomTerm("a.n", "int4")) == "a.n"


def test_a_quote_in_a_literal_is_doubled() -> None:
    assert literal("it's") == "'it''s'"
