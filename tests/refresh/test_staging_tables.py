"""Staging tables are created, replaced, appended to, and analyzed if they are large."""

from __future__ import annotations

import pyarrow as pa
from psycopg import sql

from millstream.postgres.connection import Connection
from millstream.refresh.staging_tables import MANY_ROWS, StagingTables
from millstream.spark.parts import Result


def numbers(*values: int) -> Result:
    return Result.of(
        pa.table(
            {"n": pa.array(values, pa.int64()), "t": pa.array(map(str, values), pa.large_string())}
        )
    )


DELTA = sql.Identifier("pg_temp", "ms_delta")


def held(conn: Connection, relation: sql.Identifier) -> list[tuple[object, ...]]:
    return conn.execute(sql.SQL("SELECT * FROM {} ORDER BY 1").format(relation)).fetchall()


def test_filling_a_table_again_replaces_its_rows(conn: Connection) -> None:
    staged = StagingTables(conn)
    with conn.transaction():
        assert staged.fill(DELTA, numbers(1, 2)) == 2
        assert staged.fill(DELTA, numbers(3)) == 1
        assert held(conn, DELTA) == [(3, "3")]


def test_the_rows_of_each_run_are_added(conn: Connection) -> None:
    staged = StagingTables(conn)
    with conn.transaction():
        staged.run(sql.SQL("CREATE TEMPORARY TABLE ms_delta (n bigint, t text, __run int)"))
        assert [
            staged.append(DELTA, numbers(7), 0),
            staged.append(DELTA, numbers(8), 1),
        ] == [
            1,
            1,
        ]
        assert held(conn, DELTA) == [(7, "7", 0), (8, "8", 1)]


def test_a_large_table_is_analyzed_and_a_small_one_is_not(conn: Connection) -> None:
    staged = StagingTables(conn)
    with conn.transaction():
        staged.fill(sql.Identifier("pg_temp", "ms_small"), numbers(1))
        staged.fill(sql.Identifier("pg_temp", "ms_large"), numbers(*range(MANY_ROWS + 1)))
        known = conn.execute(
            "SELECT relname, reltuples >= 0 FROM pg_class WHERE relname IN ('ms_small', 'ms_large') AND relkind = 'r'"
        )
        assert dict(known.fetchall()) == {"ms_small": False, "ms_large": True}


def test_statements_run_in_order_and_the_last_one_counts(conn: Connection) -> None:
    staged = StagingTables(conn)
    with conn.transaction():
        made = staged.run(
            sql.SQL("CREATE TEMPORARY TABLE ms_t (n int)"),
            sql.SQL("INSERT INTO ms_t VALUES (1), (2)"),
            sql.SQL("DELETE FROM ms_t"),
        )
    assert made == 2
