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


@pytest.mark.spark
def test_values_may_stand_first_in_a_join(law: Law) -> None:
    """VALUES as the first item of a join was looked for among the tables: KeyError."""
    law.change("CREATE TABLE o (id int PRIMARY KEY, q int); INSERT INTO o VALUES (1, 1), (2, 2), (3, 1)")
    values = "(VALUES (1, 'N'), (2, 'M'), (5, 'K')) AS v (s, l)"
    queries = {
        "inner": f"SELECT v.l, o.id FROM {values} JOIN o ON o.q = v.s",
        "left": f"SELECT v.l, o.id FROM {values} LEFT JOIN o ON o.q = v.s",
        "full": f"SELECT v.l, o.id FROM {values} FULL JOIN o ON o.q = v.s",
        "lateral": f"SELECT v.l, x.id FROM {values} CROSS JOIN LATERAL (SELECT id FROM o WHERE q = v.s) AS x",
        "of a subquery": f"SELECT id, (SELECT max(l) FROM {values} JOIN o AS i ON i.q = v.s WHERE i.id = o.id) AS m "
        "FROM o",
        "two of them": f"SELECT v.l, w.l AS m, o.id FROM {values} JOIN (VALUES (1, 'X')) AS w (s, l) ON w.s = v.s "
        "JOIN o ON o.q = w.s",
    }
    law.holds_for(queries, ["INSERT INTO o VALUES (7, 5), (8, NULL); DELETE FROM o WHERE id = 1", "DELETE FROM o"])
