"""FROM: which rows an item of it makes, of itself and beside the rows before it."""

from __future__ import annotations

import psycopg
import pytest
from tests.law.conftest import Law, law

from millstream.client import Millstream
from millstream.testing import oracle

__all__ = ["law"]  # a fixture


@pytest.mark.spark
def test_right_and_full_join_keep_the_row_of_a_lateral_item_without_a_row_before_it(
    law: Law,
) -> None:
    """A LATERAL item of one row was taken for more columns of the rows before it: without those it
    was lost.
    """
    law.change("CREATE TABLE e (id int PRIMARY KEY)")
    queries = {
        "right": "SELECT e.id, a.one FROM e RIGHT JOIN LATERAL (SELECT 1 AS one) AS a ON true",
        "full": "SELECT e.id, a.one FROM e FULL JOIN LATERAL (SELECT 1 AS one) AS a ON true",
        "aggregate": "SELECT e.id, a.n FROM e RIGHT JOIN LATERAL (SELECT count(*) AS n FROM e) AS a ON true",
    }
    law.holds_for(queries, ["INSERT INTO e VALUES (1), (2)", "DELETE FROM e"])


@pytest.mark.spark
def test_values_may_stand_first_in_a_join(law: Law) -> None:
    """VALUES as the first item of a join was looked for among the tables: KeyError."""
    law.change(
        "CREATE TABLE o (id int PRIMARY KEY, q int); INSERT INTO o VALUES (1, 1), (2, 2), (3, 1)"
    )
    values = "(VALUES (1, 'N'), (2, 'M'), (5, 'K')) AS v (s, l)"
    queries = {
        "inner": f"SELECT v.l, o.id FROM {values} JOIN o ON o.q = v.s",
        "left": f"SELECT v.l, o.id FROM {values} LEFT JOIN o ON o.q = v.s",
        "full": f"SELECT v.l, o.id FROM {values} FULL JOIN o ON o.q = v.s",
        "lateral": f"SELECT v.l, x.id FROM {values} CROSS JOIN LATERAL (SELECT id FROM o WHERE q = v.s) AS x",
        "of a subquery": f"SELECT id, (SELECT max(l) FROM {values} JOIN o AS i ON i.q = v.s WHERE i.id = o.id) AS m "
        "FROM o",
        "two of them": f"SELECT v.l, w.l AS m, o.id FROM {values} JOIN (VALUES (1, 'X')) AS w (s, l) ON w.s = v.s "
        "JOIN o ON o.q = w.s",
    }
    law.holds_for(
        queries,
        ["INSERT INTO o VALUES (7, 5), (8, NULL); DELETE FROM o WHERE id = 1", "DELETE FROM o"],
    )


@pytest.mark.spark
def test_a_function_may_stand_first_in_a_join(law: Law) -> None:
    """After unnest the parser expected no join; a condition that only PostgreSQL evaluates, between
    a function's column and a table, was an internal error.
    """
    law.change(
        "CREATE TABLE o (id int PRIMARY KEY, q int, r int4range, t text);"
        "INSERT INTO o SELECT i, i % 3, int4range(i, i + 2), 'ab' || i FROM generate_series(1, 6) AS i"
    )
    queries = {
        "unnest": "SELECT w, o.id FROM unnest(ARRAY[1, 2]) AS w JOIN o ON o.q = w",
        "with ordinality": "SELECT w, n, o.id FROM unnest(ARRAY[1, 2]) WITH ORDINALITY AS w (w, n) "
        "LEFT JOIN o ON o.q = n",
        "in parentheses": "SELECT o.id, w, p.t FROM o LEFT JOIN (unnest(ARRAY[1, 2]) AS w JOIN o AS p ON p.id = w) "
        "ON o.q = w",
        "only PostgreSQL": "SELECT m, o.id FROM generate_series(1, 5) AS m JOIN o ON o.r @> m",
        "of a list": "SELECT w, count(*) AS n FROM unnest(ARRAY['1', 'b[2-4]']) AS w JOIN o ON o.t ~ w GROUP BY w",
        "of values": "SELECT v.m, o.id FROM (VALUES (2), (4)) AS v (m) JOIN o ON o.r @> v.m",
    }
    law.holds_for(
        queries,
        [
            "INSERT INTO o VALUES (7, 2, '[2,9)', 'b2'), (8, NULL, NULL, NULL); DELETE FROM o WHERE id = 1",
            "UPDATE o SET r = '[4,4]', t = 'x1'; DELETE FROM o WHERE q = 2",
        ],
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [
        "WITH q (v, id) AS (SELECT id, v FROM a) SELECT id, v FROM q",
        "WITH q (k) AS (SELECT id, v FROM a) SELECT k, v FROM q",
        "WITH q (one, two) AS (SELECT sum(v), sum(w) FROM b GROUP BY id) SELECT one, two FROM q",
        "SELECT one, two FROM (SELECT id AS n, v AS n FROM a) AS q (one, two)",
        "WITH q (one, two) AS (SELECT id AS n, v AS n FROM a UNION ALL SELECT id, w FROM b) SELECT two, one FROM q",
        "SELECT j.id, j.w FROM (a JOIN b USING (id)) AS j",
        "SELECT j.av, j.bv, c.v FROM (a JOIN b ON a.id = b.w) AS j (id, av, bid, bv) JOIN c ON c.id = j.id",
        "SELECT id, a.v, c.v AS cv FROM a JOIN (b JOIN c USING (id)) USING (id)",
    ],
)
def test_columns_are_known_by_the_names_that_the_query_gives_them(
    ms: Millstream, writer: psycopg.Connection, query: str
) -> None:
    """Column lists of WITH, of joins and of derived tables were ignored."""
    writer.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE c (id int PRIMARY KEY, v int)"
    )
    writer.execute(
        "CREATE TABLE b (id int PRIMARY KEY, v int, w int); INSERT INTO b VALUES (1, 20, 2), (2, 30, 1)"
    )
    writer.execute(
        "INSERT INTO a VALUES (1, 5), (2, 6), (3, 7); INSERT INTO c VALUES (1, 50), (2, 60)"
    )
    ms.create_stream_table("st", query)
    oracle.check(ms.app.conn, query, "st")
    writer.execute(
        "UPDATE a SET v = v + 1 WHERE id = 1; UPDATE b SET w = 3 WHERE id = 2; INSERT INTO c VALUES (3, 70)"
    )
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, query, "st")
