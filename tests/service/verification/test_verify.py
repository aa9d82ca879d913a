"""The verb verify: equal rows are equal by value where the query chooses among equal values, by
text elsewhere.
"""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream

EQUAL = ("1 day", "24 hours", "23:59:60", "2 days -24:00:00", "1 mon -29 days")


@pytest.mark.spark
def test_verify_does_not_mind_which_of_equal_intervals_is_shown(
    ms: Millstream, database: str
) -> None:
    """It told of a difference where PostgreSQL showed '1 day' and the stream table '24:00:00'."""
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, i interval)")
        writer.execute("INSERT INTO t SELECT n, n % 2, '1 day' FROM generate_series(1, 4) AS n")
        ms.create_stream_table("longest", "SELECT g, max(i) AS i FROM t GROUP BY g")
        ms.create_stream_table("plain", "SELECT id, i FROM t")
        for values in (EQUAL, reversed(EQUAL)):
            for number, value in enumerate(values):
                writer.execute(
                    "UPDATE t SET i = %s::interval WHERE id = %s", (value, 1 + number % 4)
                )
                assert ms.verify("longest").ok
                assert ms.verify("plain").ok


@pytest.mark.spark
def test_verify_minds_another_text_where_nothing_is_chosen(ms: Millstream, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute(
            "CREATE TABLE t (id int PRIMARY KEY, i interval); INSERT INTO t VALUES (1, '1 day')"
        )
        ms.create_stream_table("plain", "SELECT id, i FROM t")
        writer.execute(
            "ALTER TABLE plain DISABLE TRIGGER millstream_guard; UPDATE plain SET i = '24 hours'"
        )
        writer.execute("ALTER TABLE plain ENABLE ALWAYS TRIGGER millstream_guard")
        assert (ms.verify("plain").missing, ms.verify("plain").extra) == (1, 1)
