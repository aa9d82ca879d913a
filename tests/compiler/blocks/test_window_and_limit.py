"""Windows and limits: PostgreSQL computes their rows, which are materialized."""

from __future__ import annotations

import pytest
from tests.compiler.conftest import planned

from millstream.algebra.block import LimitBlock, WindowBlock

ROW_NUMBER = 'row_number() OVER (PARTITION BY r."g0" ORDER BY r."g1")'


def limit(text: str, columns: str) -> LimitBlock:
    """Return the first block, which is a limit."""
    block = planned(text, columns)[0]
    assert isinstance(block, LimitBlock)
    return block


def test_a_window_reads_all_rows_of_a_partition_and_each_call_is_as_it_stands_in_the_query() -> (
    None
):
    text = "SELECT t.id, row_number() OVER (PARTITION BY t.a ORDER BY t.b) AS n FROM public.t"
    block, _ = planned(text, "id n", {ROW_NUMBER: "int8"})
    assert isinstance(block, WindowBlock)
    assert block.head.consolidated
    assert [key.name for key in block.head.keys] == ["k0"]
    assert [column.name for column in block.head.row_columns] == ["g0", "g1", "g2"]
    assert block.outputs[-1].expr == f"({ROW_NUMBER})"


def test_columns_break_ties_so_that_the_first_rows_are_always_the_same() -> None:
    assert limit("SELECT t.id FROM public.t ORDER BY t.a LIMIT 3", "id").tail == (
        'ORDER BY "t"."a" ASC NULLS LAST, ("t"."id"), ("t"."a") LIMIT 3'
    )


def test_with_ties_nothing_breaks_them() -> None:
    tail = limit("SELECT t.id FROM public.t ORDER BY t.a FETCH FIRST 3 ROWS WITH TIES", "id").tail
    assert tail.startswith('ORDER BY "t"."a" ASC NULLS LAST ')
    assert "WITH TIES" in tail


@pytest.mark.parametrize("order", ["ORDER BY 5 + 5", ""])
def test_a_constant_orders_nothing(order: str) -> None:
    """A number would be read as the position of a column."""
    kept = limit(f"SELECT t.id FROM public.t {order} LIMIT 3", "id")
    assert kept.order == ()
    assert kept.tail == 'ORDER BY ("t"."id") LIMIT 3'
