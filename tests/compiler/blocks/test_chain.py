"""The chain of blocks: which rows are materialized so that PostgreSQL can evaluate what Spark cannot."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

__all__ = ["law"]  # a fixture

QUERIES = {
    "of two": "SELECT * FROM (SELECT max(f) AS m FROM t) AS a, (SELECT max(f) AS n FROM t) AS b WHERE a.m + b.n > 1",
    "of three": "SELECT a.m, b.n FROM (SELECT max(f) AS m FROM t) AS a JOIN (SELECT min(f) AS n FROM t) AS b "
    "ON a.m - b.n > 0.5 JOIN (SELECT avg(f) AS o FROM t) AS c ON c.o * a.m > b.n",
}


@pytest.mark.spark
def test_single_rows_are_joined_by_any_condition(law: Law) -> None:
    """Aggregates without GROUP BY, joined by a condition that Spark cannot evaluate, left no table: IndexError."""
    law.change("""
        CREATE TABLE t (id int PRIMARY KEY, f double precision);
        INSERT INTO t VALUES (1, 0.25), (2, 1.5)
    """)
    law.holds_for(QUERIES, ["UPDATE t SET f = 0.25 WHERE id = 2", "INSERT INTO t VALUES (3, 8)", "DELETE FROM t"])
