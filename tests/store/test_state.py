"""The state of blocks: their columns have the types and collations of the query's own expressions."""

from __future__ import annotations

import psycopg
import pytest
from tests.law.conftest import Law, law

from millstream.client import Millstream

__all__ = ["law"]  # a fixture


@pytest.mark.spark
def test_a_text_that_a_mark_decides_on_a_null_extended_side_has_its_collation(law: Law) -> None:
    """The server was asked for the collation of an expression over a mark, which no table has: it
    raised an error.
    """
    law.change(
        'CREATE TABLE k (id int PRIMARY KEY); CREATE TABLE t (id int PRIMARY KEY, n int, s text COLLATE "C");'
        "CREATE TABLE u (t int); INSERT INTO k VALUES (1), (2); INSERT INTO t VALUES (1, 1, 'x');"
        "INSERT INTO u VALUES (1)"
    )
    word = "CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.t = t.id) THEN t.s ELSE 'none' END"
    query = (
        f"SELECT k.id, a.word FROM k LEFT JOIN (SELECT n, {word} AS word FROM t) AS a ON a.n = k.id"
    )
    law.holds_for({"marked": query}, ["DELETE FROM u; INSERT INTO t VALUES (2, 2, 'y')"])


@pytest.mark.spark
def test_of_equal_extremes_the_stored_one_is_one_of_the_rows(ms: Millstream, database: str) -> None:
    """An update from '1 day' to '24 hours' left '1 day' in the state: of equal values the stored
    one was preferred.
    """
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("CREATE TABLE t (id int PRIMARY KEY, i interval)")
        writer.execute("INSERT INTO t VALUES (1, '1 day'), (2, '1 hour')")
        ms.create_stream_table(
            "longest", "SELECT max(i) AS most, min(-i) AS least FROM t", schedule="1h"
        )
        for value in ("24 hours", "1 day", "23:59:60"):
            writer.execute("UPDATE t SET i = %s::interval WHERE id = 1", (value,))
            assert ms.refresh("longest").action == "DIFFERENTIAL"
            shown = writer.execute("SELECT most::text, least::text FROM longest").fetchall()
            assert (
                shown == writer.execute("SELECT i::text, (-i)::text FROM t WHERE id = 1").fetchall()
            )
