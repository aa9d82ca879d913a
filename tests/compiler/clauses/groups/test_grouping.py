"""Groups: which calls of a SELECT make them, and what is computed of them."""

from __future__ import annotations

import psycopg
import pytest
from tests.law.conftest import Law, law

from millstream.client import Millstream

__all__ = ["law"]  # a fixture

TABLES = """
    CREATE TABLE z (id int PRIMARY KEY, g int, d int, b boolean);
    INSERT INTO z SELECT n, n % 3, n % 7, n % 2 = 0 FROM generate_series(1, 20) AS n;
    CREATE FUNCTION plus(int, int) RETURNS int IMMUTABLE LANGUAGE sql
        AS 'SELECT coalesce($1, 0) OPERATOR(pg_catalog.+) coalesce($2, 0)';
    CREATE AGGREGATE total(int) (sfunc = plus, stype = int);
"""
CHANGES = [
    "INSERT INTO z VALUES (30, 1, 5, true), (31, 9, NULL, NULL)",
    "DELETE FROM z WHERE id < 8",
    "DELETE FROM z",
]

QUERIES = {
    "an aggregate in a window function alone": "SELECT sum(sum(d)) OVER () AS s FROM z",
    "in the order of a window alone": "SELECT rank() OVER (ORDER BY sum(d)) AS r FROM z",
    "in a named window": "SELECT rank() OVER w AS r FROM z WINDOW w AS (ORDER BY sum(d))",
    "in a window over groups": "SELECT g, sum(sum(d)) OVER (ORDER BY g) AS s, rank() OVER (ORDER BY count(*), g) AS r "
    "FROM z GROUP BY g",
    "in ORDER BY alone": "SELECT 1 AS one FROM z ORDER BY count(*)",
    "in ORDER BY of a subquery": "SELECT one FROM (SELECT 1 AS one FROM z ORDER BY count(*)) AS q",
    "a user's, with FILTER": "SELECT g, total(d) FILTER (WHERE b) AS t FROM z GROUP BY g",
    "a user's, with FILTER, over a window": "SELECT id, total(d) FILTER (WHERE b) OVER (PARTITION BY g) AS t FROM z",
}


@pytest.mark.spark
def test_calls_in_every_clause_make_groups(law: Law) -> None:
    """Without GROUP BY, an aggregate that stood only inside a window function made none: the server
    refused what we asked of it. One in ORDER BY made none either, silently. FILTER hid the schema
    of a user's aggregate from us.
    """
    law.change(TABLES)
    law.holds_for(QUERIES, CHANGES)


@pytest.mark.spark
@pytest.mark.parametrize(
    "query", ["SELECT sum(note ORDER BY id) AS s FROM t", "SELECT max(word) AS m FROM t"]
)
def test_an_aggregate_from_outside_with_a_name_of_the_servers_is_that_aggregate(
    ms: Millstream, writer: psycopg.Connection, query: str
) -> None:
    """It was taken for the server's own, by its name."""
    writer.execute(
        "CREATE EXTENSION citext; CREATE TABLE t (id int PRIMARY KEY, note text, word citext)"
    )
    writer.execute("CREATE AGGREGATE sum (text) (SFUNC = textcat, STYPE = text)")
    ms.create_stream_table("st", query)
    writer.execute("INSERT INTO t VALUES (1, 'a', 'B'), (2, 'c', 'a'), (3, NULL, 'b')")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    assert ms.verify("st").ok
