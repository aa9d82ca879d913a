"""Tables know what kind of rows they are, and refuse columns that contradict each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.algebra.table import (
    BlockRows,
    Clock,
    ConstantRows,
    SelfReference,
    SourceTable,
    Table,
    quoted,
)
from millstream.algebra.types import Column
from millstream.testing.planning_server import pg_type, table

ORDERS = table("orders", "id int8, amount int4", key="id")
ROWS = BlockRows(ORDERS.columns, block=3, relation_name="block_3")
VALUES = ConstantRows(ORDERS.columns, values="VALUES (1, 2)", single=True)
CLOCK = Clock((Column("now", pg_type("timestamptz")),))
ITSELF = SelfReference(ORDERS.columns, name="r", depth=1)


def test_two_columns_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two columns"):
        SourceTable(
            (Column("a", pg_type("int4")), Column("a", pg_type("text"))),
            oid=1,
            schema="public",
            name="t",
        )


def test_a_key_of_an_unknown_column_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown column"):
        replace(ORDERS, key=("missing",))


def test_plans_print_what_a_table_is() -> None:
    assert ORDERS.title == "public.orders"
    assert [table.title for table in (ROWS, VALUES, CLOCK, ITSELF)] == [
        "block 3", "VALUES (1, 2)", "the clock", "itself.r"
    ]  # fmt: skip


def test_only_the_clock_and_what_is_said_to_be_has_a_single_row() -> None:
    assert [table.single for table in (ORDERS, ROWS, VALUES, CLOCK, ITSELF)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert replace(ROWS, single=True).single


@pytest.mark.parametrize("table", [VALUES, CLOCK, ITSELF])
def test_only_tables_and_rows_of_blocks_have_keys(table: Table) -> None:
    with pytest.raises(ValueError, match="has no key"):
        replace(table, key=(table.columns[0].name,))
    assert replace(ROWS, key=("id",)).key == ("id",)


def test_a_single_row_has_no_key() -> None:
    with pytest.raises(ValueError, match="one row needs no key"):
        replace(ROWS, single=True, key=("id",))


def test_values_are_read_as_a_numbered_subquery_and_a_table_by_its_name() -> None:
    assert ORDERS.relation == '"public"."orders"'
    assert VALUES.relation == (
        '(SELECT row_number() OVER () AS __ms_row, c.* FROM (VALUES (1, 2)) AS c ("id", "amount"))'
    )
    assert (
        CLOCK.relation
        == '(SELECT row_number() OVER () AS __ms_row, c.* FROM (SELECT now()) AS c ("now"))'
    )
    assert ROWS.relation == '"pg_temp"."block_3"'


def test_a_quote_in_an_identifier_is_doubled() -> None:
    assert quoted('a"b') == '"a""b"'


def test_a_column_is_found_by_its_name() -> None:
    column = ORDERS.column("amount")
    assert column is not None
    assert column.type.base == "int4"
    assert ORDERS.column("missing") is None
