"""Orders without ties."""

from __future__ import annotations

import pytest

from millstream.algebra.types import Column, PgType
from millstream.compiler.server.total_order import with_total_order
from millstream.testing.planning_server import pg_type

COLUMNS = [Column("a", pg_type("int4")), Column("j", PgType(114, "json", "json", comparable=False))]


def test_all_sortable_columns_are_sorted_by_last() -> None:
    text = with_total_order("SELECT a, j FROM t ORDER BY a DESC LIMIT 3", COLUMNS)
    assert "ORDER BY a DESC" in text
    assert ", 1" in text
    assert ", 2" not in text


def test_an_order_is_added_where_there_is_none() -> None:
    assert "ORDER BY 1" in with_total_order("SELECT a, j FROM t LIMIT 3", COLUMNS)


@pytest.mark.parametrize(
    "text",
    ["SELECT a, j FROM t ORDER BY a", "SELECT a, j FROM t ORDER BY a FETCH FIRST 2 ROWS WITH TIES"],
)
def test_queries_whose_rows_do_not_depend_on_ties_stay(text: str) -> None:
    assert with_total_order(text, COLUMNS) == text
