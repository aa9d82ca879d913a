"""UNION, INTERSECT, EXCEPT: rows are counted on both sides."""

from __future__ import annotations

import pytest
from tests.law.conftest import SHOP, TWO_CHANGES, TWO_TABLES, Lawful

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("operator", ["UNION", "INTERSECT", "EXCEPT"])
def test_rows_of_a_set_operation_are_counted_on_both_sides(lawful: Lawful, operator: str) -> None:
    lawful(
        SHOP,
        f"""SELECT customer, status FROM orders
            {operator} SELECT id, CASE WHEN id % 2 = 0 THEN 'paid' END FROM customers""",
        "DELETE FROM orders WHERE id IN (1, 10, 3, 12)",
        "UPDATE orders SET status = NULL WHERE id % 3 = 0",
        "DELETE FROM customers WHERE id < 5; UPDATE orders SET customer = NULL WHERE customer = 6",
        "DELETE FROM orders WHERE status = 'paid'; INSERT INTO customers VALUES (2, 'x', 1)",
    )


UNIONS = {
    "a UNION ALL casts to the type that is there already, and that was refused": """
        SELECT coalesce(a.t, b.t) AS t FROM a JOIN b ON a.id = b.id UNION ALL SELECT t FROM a""",
}


@pytest.mark.parametrize("bug", UNIONS)
def test_a_union_that_was_refused_is_right(lawful: Lawful, bug: str) -> None:
    lawful(TWO_TABLES, UNIONS[bug], *TWO_CHANGES)
