"""Rows that Spark sent, consolidated by PostgreSQL."""

from __future__ import annotations

from millstream.postgres.connection import Connection
from millstream.store.decode import consolidated_sql


def test_rows_of_one_key_become_one_and_those_that_cancel_are_left_out(conn: Connection) -> None:
    rows = "SELECT * FROM (VALUES ('a', 1), ('a', 2), ('b', 1), ('b', -1), ('c', -2)) AS v (k, net)"
    query = f"SELECT k, total FROM ({consolidated_sql(rows, 'x.k', 'net')}) AS z ORDER BY k"
    assert conn.execute(query.encode()).fetchall() == [("a", 3), ("c", -2)]
