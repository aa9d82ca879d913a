"""Tables know what kind of rows they are, and refuse columns that contradict each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.algebra.table import NOW, Table, quoted
from millstream.algebra.types import Column
from millstream.testing.planning_server import pg_type, table

ORDERS = table("orders", "id int8, amount int4", key="id")


def test_two_columns_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two columns"):
        Table(1, "public", "t", (Column("a", pg_type("int4")), Column("a", pg_type("text"))))


def test_a_key_of_an_unknown_column_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown column"):
        replace(ORDERS, key=("missing",))


def test_only_a_table_of_the_user_is_stored() -> None:
    assert ORDERS.stored
    assert not replace(ORDERS, block=0).stored
    assert not replace(ORDERS, rows="VALUES (1, 2)").stored
    assert not replace(ORDERS, recursion=0).stored


def test_plans_print_what_a_table_is() -> None:
    assert ORDERS.title == "public.orders"
    assert replace(ORDERS, block=3).title == "block 3"
    assert replace(ORDERS, rows="VALUES (1, 2)").title == "VALUES (1, 2)"
    assert replace(ORDERS, rows=NOW).title == "the clock"


def test_values_are_read_as_a_numbered_subquery_and_a_table_by_its_name() -> None:
    assert ORDERS.relation == '"public"."orders"'
    assert replace(ORDERS, rows="VALUES (1, 2)").relation == (
        '(SELECT row_number() OVER () AS __ms_row, c.* FROM (VALUES (1, 2)) AS c ("id", "amount"))'
    )


def test_a_quote_in_an_identifier_is_doubled() -> None:
    assert quoted('a"b') == '"a""b"'


def test_a_column_is_found_by_its_name() -> None:
    column = ORDERS.column("amount")
    assert column is not None
    assert column.type.base == "int4"
    assert ORDERS.column("missing") is None
