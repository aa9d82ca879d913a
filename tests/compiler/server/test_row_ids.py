"""The hidden key of a stream table is left out of `SELECT *`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import millstream
from millstream.client import Millstream
from millstream.compiler.server import queries
from millstream.compiler.server.row_ids import without_row_ids
from millstream.errors import Unsupported


@pytest.fixture
def bag(database: str, writer: psycopg.Connection) -> Iterator[Millstream]:
    """A stream table without a key of its own; Spark is not needed to plan over it."""
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, word text)")
    with millstream.connect(database) as client:
        client.create_stream_table("bag", "SELECT word FROM t", initialize=False)
        yield client


def test_all_columns_of_a_stream_table_are_those_of_its_query(bag: Millstream) -> None:
    bag.create_stream_table("reader", "SELECT * FROM bag WHERE word > 'a'", initialize=False)
    row = bag.app.conn.execute(
        "SELECT canonical_query FROM millstream.stream_tables WHERE name = 'reader'"
    )
    assert "__ms_row_id" not in str(row.fetchall())


@pytest.mark.parametrize(
    "query",
    ["SELECT word FROM bag", "SELECT DISTINCT * FROM bag", "SELECT __ms_row_id AS r FROM bag"],
)
def test_any_other_query_stays(bag: Millstream, query: str) -> None:
    canonical = queries.canonical(bag.app.conn, query)
    assert without_row_ids(bag.app.conn, canonical) is canonical


@pytest.mark.notimpl
def test_where_it_decides_which_rows_there_are_it_is_refused(bag: Millstream) -> None:
    with pytest.raises(Unsupported, match="__ms_"):
        bag.create_stream_table("reader", "SELECT DISTINCT * FROM bag")
