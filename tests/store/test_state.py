"""The state of blocks: their columns have the types and collations of the query's own expressions."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

__all__ = ["law"]  # a fixture


@pytest.mark.spark
def test_a_text_that_a_mark_decides_on_a_null_extended_side_has_its_collation(law: Law) -> None:
    """The server was asked for the collation of an expression over a mark, which no table has: it raised an error."""
    law.change(
        'CREATE TABLE k (id int PRIMARY KEY); CREATE TABLE t (id int PRIMARY KEY, n int, s text COLLATE "C");'
        "CREATE TABLE u (t int); INSERT INTO k VALUES (1), (2); INSERT INTO t VALUES (1, 1, 'x');"
        "INSERT INTO u VALUES (1)"
    )
    word = "CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.t = t.id) THEN t.s ELSE 'none' END"
    query = f"SELECT k.id, a.word FROM k LEFT JOIN (SELECT n, {word} AS word FROM t) AS a ON a.n = k.id"
    law.holds_for({"marked": query}, ["DELETE FROM u; INSERT INTO t VALUES (2, 2, 'y')"])
