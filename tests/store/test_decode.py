"""Rows that Spark sent, read again by PostgreSQL in the query's own types."""

from __future__ import annotations

from psycopg import sql
from tests.compiler.conftest import planned

from millstream.postgres.connection import Connection
from millstream.store.decode import consolidated_sql, decoded_rows
from millstream.store.names import BlockNames

NAMES = BlockNames(5, "public", "st", shapes=("s",))


def test_each_column_has_its_type_and_rows_have_their_number(conn: Connection) -> None:
    [block] = planned("SELECT t.id, t.a FROM public.t", "id a")
    create = sql.SQL("CREATE TEMPORARY TABLE {} (x0 text, x1 text, __net int8)")
    conn.execute(create.format(NAMES.delta))
    conn.execute(sql.SQL("INSERT INTO {} VALUES ('7', NULL, -2)").format(NAMES.delta))
    query = sql.SQL("SELECT *, pg_typeof(x0)::text FROM {}").format(decoded_rows(block, NAMES))
    rows = conn.execute(query).fetchall()
    assert rows == [(7, None, -2, "integer")]


def test_some_of_the_rows_can_be_decoded_alone(conn: Connection) -> None:
    [block] = planned("SELECT t.id FROM public.t", "id")
    some = sql.SQL("(SELECT * FROM (VALUES ('1', 1), ('2', 3)) AS v (x0, __net) WHERE __net > 1)")
    query = sql.SQL("SELECT * FROM {}").format(decoded_rows(block, NAMES, some))
    assert conn.execute(query).fetchall() == [(2, 3)]


def test_rows_of_one_key_become_one_and_those_that_cancel_are_left_out(conn: Connection) -> None:
    rows = sql.SQL(
        "SELECT * FROM (VALUES ('a', 1), ('a', 2), ('b', 1), ('b', -1), ('c', -2)) AS v (k, net)"
    )
    consolidated = consolidated_sql(rows, sql.Identifier("x", "k"), "net")
    query = sql.SQL("SELECT k, total FROM ({}) AS z ORDER BY k").format(consolidated)
    assert conn.execute(query).fetchall() == [("a", 3), ("c", -2)]
