"""Defects that a hostile review found, each once."""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.testing import oracle

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(ms: Millstream, database: str) -> psycopg.Connection:
    return psycopg.connect(database, autocommit=True)


def test_a_subscript_of_an_array_from_a_subquery_is_not_shifted(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, a int[], k int); INSERT INTO t VALUES (1, '{10,20,30}', 7)")
    query = "SELECT id, y[2] AS x, y[1] AS w FROM (SELECT id, a || k AS y FROM t) AS q WHERE y[4] = 7"
    ms.create_stream_table("st", query)
    oracle.check(ms.app.conn, query, "st")
    assert writer.execute("SELECT x, w FROM st").fetchall() == [(20, 10)]


def test_a_mark_at_the_beginning_of_the_first_text_is_kept(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (note text, id int); INSERT INTO t VALUES (U&'\\FEFFfirst', 1), ('', 2), (NULL, 3)")
    ms.create_stream_table("st", "SELECT note, id FROM t")
    oracle.check(ms.app.conn, "SELECT note, id FROM t", "st")
    writer.execute("INSERT INTO t VALUES (U&'\\FEFFsecond', 4)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, "SELECT note, id FROM t", "st")


def test_drop_takes_our_table_and_not_one_that_has_its_name_by_now(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY)")
    ms.create_stream_table("st", "SELECT id FROM t")
    writer.execute("ALTER TABLE st RENAME TO st_kept; CREATE TABLE st AS SELECT 'precious' AS word")
    ms.drop_stream_table("st")
    assert writer.execute("SELECT word FROM st").fetchall() == [("precious",)]
    assert writer.execute("SELECT to_regclass('st_kept')").fetchone() == (None,)


def test_a_foreign_key_on_a_stream_table_cascades_once(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY, p int)")
    writer.execute("INSERT INTO t VALUES (1), (2), (3)")
    ms.create_stream_table("a_st", "SELECT id FROM t", schedule="continuous")
    ms.create_stream_table("b_st", "SELECT count(*) AS n FROM c", schedule="continuous")
    writer.execute("INSERT INTO c VALUES (1, 1), (2, 2), (3, 3)")
    writer.execute("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES a_st (id) ON DELETE CASCADE")
    writer.execute("DELETE FROM t WHERE id = 1; INSERT INTO c VALUES (4, 2)")
    for _ in range(3):
        ms.tick()
    oracle.check(ms.app.conn, "SELECT count(*) AS n FROM c", "b_st")


def test_having_guards_the_select_list(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, x int, y int)")
    writer.execute("INSERT INTO t VALUES (1, 1, 4, 2), (2, 2, 5, 0)")
    query = "SELECT g, sum(x) / sum(y) AS q FROM t GROUP BY g HAVING sum(y) <> 0"
    ms.create_stream_table("st", query)
    writer.execute("UPDATE t SET y = 0 WHERE id = 1; INSERT INTO t VALUES (3, 2, 1, 3)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, query, "st")
    assert writer.execute("SELECT * FROM st").fetchall() == [(2, 2)]
