"""The server's text comes out as it went in."""

from __future__ import annotations

import psycopg
import pytest

from millstream.algebra.dialect import CYCLE, SEARCH, CycleClause, SearchClause, parsed, printed
from millstream.client import Millstream
from millstream.testing import oracle


@pytest.mark.parametrize(
    "text",
    [
        'SELECT substr(t, 1), mod(x, 2), "left"(t, 1)',
        "SELECT x IS NOT NULL, t !~ 'a', t !~* 'b'",
        "SELECT NOT (a AND b)",
        "SELECT x = ALL(y), x = ANY(y)",
        "SELECT x[1], 2 ^ 3",
        "SELECT string_agg(DISTINCT x, ',' ORDER BY x)",
        "SELECT shop.total(x) FILTER(WHERE x > 1)",
        "SELECT * FROM (VALUES (1, 2), (3, 4)) AS v(a, b)",
        "SELECT rank() OVER (w ORDER BY y ROWS 3 PRECEDING EXCLUDE TIES) FROM t WINDOW w AS (PARTITION BY z)",
        "SELECT rank() OVER (ORDER BY y RANGE UNBOUNDED PRECEDING) FROM t",
        "SELECT t.a FROM (t JOIN u USING (id) AS j)",
    ],
)
def test_a_statement_is_printed_as_the_server_wrote_it(text: str) -> None:
    assert printed(parsed(text)) == text


def test_a_quoted_name_is_no_grammar() -> None:
    assert '"substring"(x, 1)' in printed(parsed('SELECT "substring"(x, 1)'))


def test_search_and_cycle_belong_to_their_own_query() -> None:
    tree = parsed(
        "WITH RECURSIVE r(a, b) AS (SELECT 1, 2 UNION ALL SELECT a, b FROM r) "
        "SEARCH DEPTH FIRST BY a, b SET o CYCLE a SET m USING p SELECT * FROM r"
    )
    (cte,) = tree.args["with_"].expressions
    assert cte.args[SEARCH] == SearchClause(True, ("a", "b"), "o")
    assert cte.args[CYCLE] == CycleClause(("a",), "m", "", "", "p")
    assert 'SEARCH DEPTH FIRST BY "a", "b" SET "o" CYCLE "a" SET "m" USING "p"' in printed(tree)


def test_the_values_of_a_cycle_mark_are_written_as_the_server_reads_them() -> None:
    assert (
        "TO TEXT 'Y' DEFAULT TEXT 'N'"
        in CycleClause(("a",), "m", "'Y'::text", "'N'::text", "p").sql
    )


@pytest.mark.spark
def test_a_subscript_of_an_array_from_a_subquery_is_not_shifted(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """It was shifted by one when the text was parsed and printed."""
    writer.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int[], k int); INSERT INTO t VALUES (1, '{10,20,30}', 7)"
    )
    query = (
        "SELECT id, y[2] AS x, y[1] AS w FROM (SELECT id, a || k AS y FROM t) AS q WHERE y[4] = 7"
    )
    ms.create_stream_table("st", query)
    oracle.check(ms.app.conn, query, "st")
    assert writer.execute("SELECT x, w FROM st").fetchall() == [(20, 10)]
