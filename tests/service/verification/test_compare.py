"""Stream tables are compared with their queries by text, and by value where PostgreSQL chooses among equal values."""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.postgres.connection import Connection
from millstream.service.verification import compare

EQUAL = ("1 day", "24 hours", "23:59:60", "2 days -24:00:00", "1 mon -29 days")
OTHERS = ("1 mon", "30 days", "720:00:00", "-1 day", "-24:00:00", "0", "1 year", "360 days", "00:00:00.000001")


def test_intervals_are_equal_by_value_exactly_where_postgresql_says_so(conn: Connection) -> None:
    listed = ", ".join(f"('{value}'::interval)" for value in (*EQUAL, *OTHERS))
    length = compare._LENGTH
    pairs = conn.execute(
        f"SELECT a.v::text, b.v::text FROM (VALUES {listed}) AS a (v), (VALUES {listed}) AS b (v) "
        f"WHERE (a.v = b.v) <> ({length.format(x='a.v')} = {length.format(x='b.v')})".encode()
    ).fetchall()
    assert pairs == []


@pytest.mark.spark
def test_verify_does_not_mind_which_of_equal_intervals_is_shown(ms: Millstream, database: str) -> None:
    """It told of a difference where PostgreSQL showed '1 day' and the stream table '24:00:00'."""
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, i interval)")
        writer.execute("INSERT INTO t SELECT n, n % 2, '1 day' FROM generate_series(1, 4) AS n")
        ms.create_stream_table("longest", "SELECT g, max(i) AS i FROM t GROUP BY g")
        ms.create_stream_table("plain", "SELECT id, i FROM t")
        for values in (EQUAL, reversed(EQUAL)):
            for number, value in enumerate(values):
                writer.execute("UPDATE t SET i = %s::interval WHERE id = %s", (value, 1 + number % 4))
                assert ms.verify("longest").ok
                assert ms.verify("plain").ok


@pytest.mark.spark
def test_verify_minds_another_text_where_nothing_is_chosen(ms: Millstream, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("CREATE TABLE t (id int PRIMARY KEY, i interval); INSERT INTO t VALUES (1, '1 day')")
        ms.create_stream_table("plain", "SELECT id, i FROM t")
        writer.execute("ALTER TABLE plain DISABLE TRIGGER millstream_guard; UPDATE plain SET i = '24 hours'")
        writer.execute("ALTER TABLE plain ENABLE ALWAYS TRIGGER millstream_guard")
        assert (ms.verify("plain").missing, ms.verify("plain").extra) == (1, 1)
