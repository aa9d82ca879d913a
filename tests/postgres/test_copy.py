"""Rows from PostgreSQL into Arrow: as they are, and what is left when that goes wrong."""

from __future__ import annotations

import io

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from millstream.client import Millstream
from millstream.postgres import copy
from millstream.postgres.composed import Printed
from millstream.postgres.connection import Connection
from millstream.testing import oracle
from millstream.testing.disk import files_of_at_most

NUMBERS = pa.schema([("n", pa.int32()), ("word", pa.string())])
MANY = 200_000
WORDS = sql.Identifier("words")


def test_many_rows_arrive_in_order(conn: Connection) -> None:
    word = "CASE n % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'w' || n END"
    found = copy.fetch(
        conn, Printed(f"SELECT n, {word} FROM generate_series(1, {MANY}) AS n"), NUMBERS
    )
    assert found.schema == NUMBERS
    assert found.column("n").to_pylist() == list(range(1, MANY + 1))
    assert found.column("word").slice(0, 3).to_pylist() == ["", "w2", None]


def test_no_rows_have_their_columns(conn: Connection) -> None:
    assert copy.fetch(conn, Printed("SELECT 1, '' WHERE false"), NUMBERS) == NUMBERS.empty_table()


def test_an_error_before_the_first_row_leaves_the_connection(conn: Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        copy.fetch(conn, Printed("SELECT 1, 'x' FROM nowhere"), NUMBERS)
    assert conn.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_amid_the_rows_is_the_servers_and_leaves_the_connection(conn: Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        copy.fetch(
            conn,
            Printed(f"SELECT 1 / (n - {MANY}), 'x' FROM generate_series(1, {MANY}) AS n"),
            NUMBERS,
        )
    assert conn.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_rolls_back_to_where_the_caller_says(conn: Connection) -> None:
    with conn.transaction():
        conn.execute("CREATE TABLE kept (n int)")
        with pytest.raises(psycopg.errors.DivisionByZero), conn.transaction():
            copy.fetch(conn, Printed("SELECT 1 / 0, 'x'"), NUMBERS)
    assert copy.fetch(conn, Printed("SELECT n, 'x' FROM kept"), NUMBERS).num_rows == 0


def test_one_statement_only(conn: Connection) -> None:
    with pytest.raises(psycopg.errors.SyntaxError):
        copy.fetch(conn, Printed("SELECT 1, 'x') TO STDOUT; COPY (SELECT 1, 'y'"), NUMBERS)


def test_interrupted_amid_the_rows_the_connection_counts_as_lost(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the next verb connects anew, instead of finding the rest of the rows."""

    class Interrupted(io.BytesIO):
        def write(self, row: object) -> int:
            raise KeyboardInterrupt

    monkeypatch.setattr("millstream.postgres.copy.io.BytesIO", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        copy.fetch(conn, Printed(f"SELECT n, 'x' FROM generate_series(1, {MANY}) AS n"), NUMBERS)
    assert conn.broken


def test_a_session_that_is_ended_amid_the_rows_is_lost(conn: Connection, database: str) -> None:
    end = "pg_terminate_backend(pg_backend_pid())::text"
    with pytest.raises(psycopg.OperationalError):
        copy.fetch(conn, Printed(f"SELECT n, {end} FROM generate_series(1, 9) AS n"), NUMBERS)
    assert conn.broken


# -- in parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "files"), [(0, False), (10, False), (5_000, True)])
def test_rows_fetched_in_parts_are_the_same_rows(
    conn: Connection, number: int, files: bool
) -> None:
    query = Printed(f"SELECT n, repeat('w\n\"', n % 5) FROM generate_series(1, {number}) AS n")
    parts = copy.fetch_parts(conn, query, NUMBERS, 10_000)
    assert parts.is_one is not files
    tables = list(parts)
    assert all(table.nbytes < 20_000 for table in tables)
    assert pa.concat_tables(tables) == copy.fetch(conn, query, NUMBERS)


def test_a_full_disk_is_an_error_and_leaves_the_connection(conn: Connection) -> None:
    """The session was ended amid the rows, and with it the transaction in which other stream tables
    were refreshed.
    """
    query = Printed("SELECT n, repeat('w', 100) FROM generate_series(1, 50000) AS n")
    with conn.transaction():
        with files_of_at_most(100_000), pytest.raises(OSError, match="too large"):
            copy.fetch_parts(conn, query, NUMBERS, 50_000)
        assert conn.execute("SELECT 1").fetchall() == [(1,)]


def test_tables_that_follow_each_other_are_sent_as_one(conn: Connection) -> None:
    conn.execute("CREATE TEMPORARY TABLE words (n int, word text)")
    empty, one = NUMBERS.empty_table(), pa.table({"n": [1, 2], "word": ["", None]}, schema=NUMBERS)
    assert copy.send_each(conn, WORDS, NUMBERS, []) == 0
    assert copy.send_each(conn, WORDS, NUMBERS, iter([empty, one, empty, one])) == 4
    assert conn.execute("SELECT n, word FROM words").fetchall() == [(1, ""), (2, None)] * 2


@pytest.mark.spark
def test_a_mark_at_the_beginning_of_the_first_text_is_kept(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """It was taken for the byte-order mark of the stream, and lost."""
    writer.execute(
        "CREATE TABLE t (note text, id int); INSERT INTO t VALUES (U&'\\FEFFfirst', 1), ('', 2), (NULL, 3)"
    )
    ms.create_stream_table("st", "SELECT note, id FROM t")
    oracle.check(ms.app.conn, "SELECT note, id FROM t", "st")
    writer.execute("INSERT INTO t VALUES (U&'\\FEFFsecond', 4)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, "SELECT note, id FROM t", "st")
