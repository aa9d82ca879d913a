"""FROM: which rows an item of it makes, of itself and beside the rows before it."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

__all__ = ["law"]  # a fixture


@pytest.mark.spark
def test_right_and_full_join_keep_the_row_of_a_lateral_item_without_a_row_before_it(law: Law) -> None:
    """A LATERAL item of one row was taken for more columns of the rows before it: without those it was lost."""
    law.change("CREATE TABLE e (id int PRIMARY KEY)")
    queries = {
        "right": "SELECT e.id, a.one FROM e RIGHT JOIN LATERAL (SELECT 1 AS one) AS a ON true",
        "full": "SELECT e.id, a.one FROM e FULL JOIN LATERAL (SELECT 1 AS one) AS a ON true",
        "aggregate": "SELECT e.id, a.n FROM e RIGHT JOIN LATERAL (SELECT count(*) AS n FROM e) AS a ON true",
    }
    law.holds_for(queries, ["INSERT INTO e VALUES (1), (2)", "DELETE FROM e"])
