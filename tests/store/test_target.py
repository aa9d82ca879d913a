"""The table of a stream table: rows are found by their key, of any type and any length."""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.testing import oracle

pytestmark = pytest.mark.spark


def test_a_key_of_an_extensions_type_finds_its_rows(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """Its `=` is an operator of the extension, which is not on our search_path."""
    writer.execute("CREATE EXTENSION citext; CREATE TABLE t (c citext PRIMARY KEY, v int)")
    writer.execute("INSERT INTO t VALUES ('a', 1), ('b', 2)")
    ms.create_stream_table("st", "SELECT c, v FROM t")
    writer.execute(
        "UPDATE t SET c = 'A' WHERE c = 'a'; DELETE FROM t WHERE c = 'B'; INSERT INTO t VALUES ('x', 3)"
    )
    assert ms.refresh("st").action == "DIFFERENTIAL"
    assert sorted(writer.execute("SELECT c, v FROM st").fetchall()) == [("A", 1), ("x", 3)]


LONG = "SELECT string_agg(md5(i::text), '') FROM generate_series({}, {} + 400) AS i"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT word, count(*) AS n FROM t GROUP BY word",
        "SELECT DISTINCT id % 2 AS odd, word FROM t",
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_keys_too_long_for_a_unique_index_are_stored(
    ms: Millstream, writer: psycopg.Connection, query: str, first: bool
) -> None:
    """A B-tree refuses entries of more than some 2,700 bytes."""
    writer.execute(
        "CREATE TABLE t (id int, word text); INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'a')"
    )
    if first:
        writer.execute(f"INSERT INTO t VALUES (4, ({LONG.format(1, 1)}))".encode())
    ms.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    for change in (
        f"INSERT INTO t VALUES (5, ({LONG.format(1, 1)})), (7, ({LONG.format(2, 2)})), (6, 'b'), (8, NULL)",
        "DELETE FROM t WHERE id IN (1, 3, 5); INSERT INTO t SELECT 9, word FROM t WHERE id = 7",
        "DELETE FROM t WHERE length(word) > 9; INSERT INTO t VALUES (1, 'a')",
    ):
        writer.execute(change.encode())
        assert ms.refresh("st").action == "DIFFERENTIAL"
        oracle.check(ms.app.conn, query, "st")
    methods = "SELECT am.amname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid "
    methods += "JOIN pg_am AS am ON am.oid = c.relam WHERE i.indrelid = 'st'::regclass"
    assert sorted(writer.execute(methods.encode()).fetchall()) == [("btree",), ("hash",)]
    writer.execute("DROP TRIGGER millstream_guard ON st")
    with pytest.raises(psycopg.errors.UniqueViolation):
        writer.execute("INSERT INTO st SELECT * FROM st")
