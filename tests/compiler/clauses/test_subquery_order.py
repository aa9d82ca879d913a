"""ORDER BY in a subquery of FROM, under calls whose result depends on the order of their rows."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

from millstream.compiler.server.plan_query import plan_query
from millstream.errors import Unsupported
from millstream.postgres.connection import Connection

__all__ = ["law"]  # a fixture

TABLES = """
    CREATE TABLE a (id int PRIMARY KEY, g int, x text COLLATE "C", y int, n numeric);
    INSERT INTO a SELECT n, n % 3, chr(97 + n * 7 % 23), n * 11 % 17, n / 4.0 FROM generate_series(1, 17) AS n;
    CREATE VIEW sorted AS SELECT id, g, x FROM a ORDER BY y DESC;
    CREATE FUNCTION put(text, text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT concat($1, $2)';
    CREATE AGGREGATE written(text) (sfunc = put, stype = text);
"""
CHANGES = [
    "INSERT INTO a VALUES (40, 1, 'q', -3, 0), (41, 7, 'r', 99, NULL); UPDATE a SET y = y + 100 WHERE id IN (3, 8)",
    "DELETE FROM a WHERE y < 8; UPDATE a SET y = -y",
]

IN_AGGREGATES = {
    "string_agg": "SELECT string_agg(x, ',') AS s FROM (SELECT * FROM a ORDER BY x) AS q",
    "by a column that is not shown": "SELECT string_agg(x, ',') AS s FROM (SELECT x FROM a ORDER BY y DESC) AS q",
    "by an expression": "SELECT array_agg(id) AS s FROM (SELECT id FROM a ORDER BY -y, id) AS q",
    "of groups": "SELECT g, json_agg(x) AS s, array_agg(id) AS i FROM (SELECT * FROM a ORDER BY g, y) AS q GROUP BY g",
    "of groups, by another column": "SELECT g, array_agg(id) AS s FROM (SELECT * FROM a ORDER BY y) AS q GROUP BY g",
    "with FILTER": "SELECT string_agg(x, '') FILTER (WHERE g > 0) AS s FROM (SELECT * FROM a ORDER BY y) AS q",
    "a user's aggregate": "SELECT written(x) AS s FROM (SELECT x FROM a ORDER BY y) AS q",
    "through WHERE and a select list": "SELECT array_agg(z) AS s FROM (SELECT id * 2 AS z FROM (SELECT id, g FROM a "
    "ORDER BY y) AS i WHERE g > 0) AS q",
    "of a WITH query": "WITH q (i) AS (SELECT id FROM a ORDER BY y) SELECT array_agg(i) AS s FROM q WHERE i > 2",
    "of a WITH query over another": "WITH p AS (SELECT id, y FROM a ORDER BY y), q AS (SELECT id FROM p) "
    "SELECT array_agg(id) AS s FROM q",
    "of a view": "SELECT g, string_agg(x, '') AS s FROM sorted GROUP BY g",
    "of a union": "SELECT array_agg(i) AS s FROM (SELECT id FROM a UNION ALL SELECT y FROM a ORDER BY 1 DESC) AS q (i)",
    "of groups of their own": "SELECT array_agg(g) AS s FROM (SELECT g FROM a GROUP BY g ORDER BY count(*), g) AS q",
    "of the first rows": "SELECT array_agg(id) AS s FROM (SELECT id FROM a ORDER BY y LIMIT 5) AS q",
    "of distinct rows": "SELECT array_agg(g) AS s FROM (SELECT DISTINCT g FROM a ORDER BY g DESC) AS q",
    "tied to the row around": "SELECT o.id, (SELECT string_agg(x, '') FROM (SELECT x FROM a AS i WHERE i.g = o.g "
    "ORDER BY i.y) AS q) AS s FROM a AS o",
    "its own order comes first": "SELECT array_agg(id ORDER BY id) AS s FROM (SELECT * FROM a ORDER BY y) AS q",
    "two levels": "SELECT array_agg(s) AS t FROM (SELECT g, string_agg(x, '') AS s FROM (SELECT * FROM a ORDER BY y) "
    "AS q GROUP BY g ORDER BY g DESC) AS r",
}
IN_WINDOWS = {
    "row_number": "SELECT id, row_number() OVER () AS n FROM (SELECT id FROM a ORDER BY y) AS q",
    "of partitions": "SELECT id, row_number() OVER (PARTITION BY g) AS n FROM (SELECT * FROM a ORDER BY g, y) AS q",
    "lag, ntile": "SELECT id, lag(id) OVER () AS l, ntile(3) OVER () AS t FROM (SELECT id FROM a ORDER BY y) AS q",
    "first_value, last_value": "SELECT id, first_value(id) OVER w AS f, last_value(id) OVER w AS l "
    "FROM (SELECT id FROM a ORDER BY y) AS q WINDOW w AS ()",
    "a frame of rows": "SELECT id, sum(id) OVER (ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) AS s "
    "FROM (SELECT id FROM a ORDER BY y) AS q",
    "string_agg": "SELECT id, string_agg(x, '') OVER () AS s FROM (SELECT * FROM a ORDER BY y) AS q",
    "peers stay peers": "SELECT id, rank() OVER () AS r, sum(id) OVER () AS s FROM (SELECT id FROM a ORDER BY y) AS q",
}


@pytest.mark.spark
def test_the_order_of_a_subquery_reaches_the_calls_over_it(law: Law) -> None:
    """It was lost, silently: PostgreSQL's manual offers a sorted subquery as the input of
    string_agg().
    """
    law.change(TABLES)
    windows = {f"window: {what}": query for what, query in IN_WINDOWS.items()}
    law.holds_for({**IN_AGGREGATES, **windows}, CHANGES)


REFUSED = {
    "a join below a join": (
        "SELECT t.id, array_agg(q.x) AS s FROM (SELECT * FROM u ORDER BY x) AS q JOIN t ON t.id = q.id "
        "JOIN t AS o ON o.id = q.x GROUP BY t.id",
        "SELECT t.id, array_agg(q.x ORDER BY q.x) AS s FROM (SELECT * FROM u ORDER BY x) AS q JOIN t ON t.id = q.id "
        "JOIN t AS o ON o.id = q.x GROUP BY t.id",
    ),
    "joined": (
        "SELECT u.id, array_agg(q.id) AS s FROM u JOIN (SELECT * FROM t ORDER BY x) AS q ON q.s = u.x GROUP BY u.id",
        "SELECT u.id, array_agg(q.id ORDER BY q.x) AS s FROM u JOIN t AS q ON q.s = u.x GROUP BY u.id",
    ),
    "a part of a union": (
        "SELECT array_agg(id) AS s FROM ((SELECT id FROM t ORDER BY x) UNION ALL SELECT id FROM u) AS q",
        "SELECT array_agg(id ORDER BY id) AS s FROM ((SELECT id FROM t ORDER BY x) UNION ALL SELECT id FROM u) AS q",
    ),
    "peers are left out": (
        "SELECT sum(id) OVER (ROWS 1 PRECEDING EXCLUDE TIES) AS s FROM (SELECT id FROM t ORDER BY x) AS q",
        "SELECT sum(id) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS s FROM t",
    ),
}


FIRST_ROWS = {
    "LIMIT": (
        "SELECT id FROM (SELECT id, x FROM t ORDER BY x) AS q LIMIT 3",
        "SELECT id FROM (SELECT id, x FROM t ORDER BY x) AS q ORDER BY x LIMIT 3",
    ),
    "OFFSET": (
        "SELECT id FROM (SELECT id, x FROM t ORDER BY x) AS q WHERE id > 1 OFFSET 2",
        "SELECT id FROM (SELECT id, x FROM t ORDER BY x) AS q WHERE id > 1 ORDER BY x OFFSET 2",
    ),
    "LIMIT over two levels": (
        "WITH q AS (SELECT id, x FROM t ORDER BY x) SELECT id FROM (SELECT id, x FROM q WHERE id > 1) AS p LIMIT 3",
        "WITH q AS (SELECT id, x FROM t ORDER BY x) SELECT id FROM (SELECT id, x FROM q WHERE id > 1) AS p "
        "ORDER BY x LIMIT 3",
    ),
    "LIMIT in a subquery": (
        "SELECT count(*) AS n FROM (SELECT id FROM (SELECT id, x FROM t ORDER BY x) AS q LIMIT 3) AS p WHERE id > 5",
        "SELECT count(*) AS n FROM (SELECT id FROM (SELECT id, x FROM t) AS q ORDER BY x LIMIT 3) AS p WHERE id > 5",
    ),
    "DISTINCT ON": (
        "SELECT DISTINCT ON (s) s, id FROM (SELECT s, id, x FROM t ORDER BY s, x) AS q",
        "SELECT DISTINCT ON (s) s, id FROM (SELECT s, id, x FROM t ORDER BY s, x) AS q ORDER BY s, x",
    ),
}
ANY_ORDER = {
    "all rows": "SELECT id FROM (SELECT id, x FROM t ORDER BY x) AS q OFFSET 0",
    "groups": "SELECT s, count(*) AS n FROM (SELECT s FROM t ORDER BY x) AS q GROUP BY s LIMIT 3",
    "a subquery that is not sorted": "SELECT id FROM (SELECT id, x FROM t) AS q LIMIT 3",
}


@pytest.mark.parametrize("what", FIRST_ROWS)
def test_the_first_rows_of_a_sorted_subquery_are_asked_for_by_an_order(
    planner: Connection, what: str
) -> None:
    """LIMIT without an ORDER BY took the first rows by all columns, and PostgreSQL those of the
    subquery's order.
    """
    refused, rewritten = FIRST_ROWS[what]
    with pytest.raises(Unsupported, match="ORDER BY of its own"):
        plan_query(planner, refused)
    assert plan_query(planner, rewritten).blocks


@pytest.mark.parametrize("what", ANY_ORDER)
def test_where_no_order_decides_nothing_is_refused(planner: Connection, what: str) -> None:
    assert plan_query(planner, ANY_ORDER[what]).blocks


@pytest.mark.parametrize("what", REFUSED)
def test_an_order_that_depends_on_the_servers_plan_is_refused(
    planner: Connection, what: str
) -> None:
    """Below a join it was lost too; PostgreSQL shows it or not, as the join is made."""
    refused, rewritten = REFUSED[what]
    with pytest.raises(Unsupported, match="ORDER BY of its own"):
        plan_query(planner, refused)
    assert plan_query(planner, rewritten).blocks
