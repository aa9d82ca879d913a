"""Rows that Spark sent, read again by PostgreSQL in the query's own types."""

from __future__ import annotations

from tests.compiler.conftest import planned

from millstream.postgres.connection import Connection
from millstream.store.decode import consolidated_sql, decoded_rows
from millstream.store.names import BlockNames

NAMES = BlockNames(5, "public", "st", shapes=("s",))


def test_each_column_has_its_type_and_rows_have_their_number(conn: Connection) -> None:
    [block] = planned("SELECT t.id, t.a FROM public.t", "id a")
    conn.execute(
        f"CREATE TEMPORARY TABLE {NAMES.delta.removeprefix('pg_temp.')} (x0 text, x1 text, __net int8)".encode()
    )
    conn.execute(f"INSERT INTO {NAMES.delta} VALUES ('7', NULL, -2)".encode())
    rows = conn.execute(
        f"SELECT *, pg_typeof(x0)::text FROM {decoded_rows(block, NAMES)}".encode()
    ).fetchall()
    assert rows == [(7, None, -2, "integer")]


def test_some_of_the_rows_can_be_decoded_alone(conn: Connection) -> None:
    [block] = planned("SELECT t.id FROM public.t", "id")
    some = "(VALUES ('1', 1), ('2', 3))"
    item = decoded_rows(block, NAMES, f"(SELECT * FROM {some} AS v (x0, __net) WHERE __net > 1)")
    assert conn.execute(f"SELECT * FROM {item}".encode()).fetchall() == [(2, 3)]


def test_rows_of_one_key_become_one_and_those_that_cancel_are_left_out(conn: Connection) -> None:
    rows = "SELECT * FROM (VALUES ('a', 1), ('a', 2), ('b', 1), ('b', -1), ('c', -2)) AS v (k, net)"
    query = f"SELECT k, total FROM ({consolidated_sql(rows, 'x.k', 'net')}) AS z ORDER BY k"
    assert conn.execute(query.encode()).fetchall() == [("a", 3), ("c", -2)]
