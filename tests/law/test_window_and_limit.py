"""Windows and limits: rows change their partition, and the next row takes the place of one that
goes.
"""

from __future__ import annotations

import pytest
from tests.law.conftest import SHOP, Lawful

pytestmark = pytest.mark.spark


def test_a_row_leaves_one_partition_and_enters_another(lawful: Lawful) -> None:
    lawful(
        SHOP,
        """SELECT id, customer, rank() OVER (PARTITION BY customer ORDER BY amount, id) AS place,
               sum(amount) OVER (PARTITION BY status) AS total FROM orders""",
        "UPDATE orders SET customer = 1 WHERE id IN (2, 11)",
        "UPDATE orders SET status = NULL, amount = 0 WHERE id % 4 = 0",
        "DELETE FROM orders WHERE customer = 1",
    )


def test_the_row_behind_the_last_takes_the_place_of_one_that_goes(lawful: Lawful) -> None:
    lawful(
        SHOP,
        "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 5",
        "DELETE FROM orders WHERE id = 38",
        "UPDATE orders SET amount = 1000 WHERE id = 1",
        "UPDATE orders SET amount = 0 WHERE amount > 40",
        "DELETE FROM orders WHERE id > 3",
    )
