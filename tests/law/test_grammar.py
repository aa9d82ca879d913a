"""Grammar that people write: each form is kept, differentially, and equals PostgreSQL's answer."""

from __future__ import annotations

import psycopg
import pytest
from tests.service.conftest import exact_through

from millstream import Millstream

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, a int, v varchar(9), word text, x float8);
    CREATE TABLE k (id int, n int, name text);
    CREATE VIEW rows_of_k AS SELECT id, k AS r, count(k.*) OVER () AS n FROM k;
    INSERT INTO k SELECT nullif(n, 9), nullif(n % 4, 0), nullif('k' || n % 3, 'k0') FROM generate_series(1, 12) AS n;
    INSERT INTO k VALUES (NULL, NULL, NULL);
    CREATE TABLE u (id int PRIMARY KEY, a int, word text, j jsonb, r jsonb, x xml);
    INSERT INTO t SELECT n, n % 4, 'v' || n % 5, 'w' || n % 3, n / 8.0 FROM generate_series(1, 30) AS n;
    INSERT INTO u SELECT n * 3, n % 3, 'w' || n % 4, jsonb_build_object('k', nullif(n % 4, 1), 'list',
        jsonb_build_array(n % 3, n % 5)),
        jsonb_build_array(jsonb_build_object('x', n, 'y', 'a' || n), jsonb_build_object('x', n + 1))
        FROM generate_series(1, 15) AS n;
"""
CHANGE = """
    INSERT INTO t VALUES (50, 2, 'v1', 'w9', 1), (51, NULL, NULL, NULL, NULL);
    UPDATE t SET a = 3, v = 'v2', x = x + 0.5 WHERE id IN (3, 4);
    DELETE FROM t WHERE id = 8;
    INSERT INTO u VALUES (50, NULL, 'w1', '{"list": [7, 8, 1]}', '[{"x": 9}]'), (1, 4, NULL, NULL, NULL);
    UPDATE k SET id = id + 1, name = NULL WHERE n = 2;
    DELETE FROM k WHERE id = 7;
    INSERT INTO k VALUES (50, 1, 'new'), (8, NULL, NULL);
    UPDATE u SET j = '{"k": 5, "list": [3, 4]}', r = '[{"y": "new"}]' WHERE id IN (3, 6);
    DELETE FROM u WHERE a = 2;
"""
# Where the server was built with libxml.
XML = """
    UPDATE u SET x = xmlelement(name r, xmlelement(name e, xmlattributes(id AS k)), xmlelement(name e));
"""
QUERIES = {
    "varchar in a list": "SELECT id FROM t WHERE v IN ('v1', 'v2')",
    "varchar not in a list, across tables": "SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON u.a = t.a "
    "AND t.v NOT IN ('v1', 'v2')",
    "varchar in a list, in CASE and FILTER": "SELECT a, count(*) FILTER (WHERE v IN ('v1', 'v3')) AS n, "
    "max(CASE WHEN v IN ('v2', 'v4') THEN id END) AS m FROM t GROUP BY a",
    "frames without BETWEEN": "SELECT id, sum(id) OVER (PARTITION BY a ORDER BY id ROWS 2 PRECEDING) AS r, "
    "count(*) OVER (PARTITION BY a ORDER BY id RANGE UNBOUNDED PRECEDING) AS n, "
    "max(id) OVER (PARTITION BY a ORDER BY v GROUPS 1 PRECEDING EXCLUDE TIES) AS m FROM t",
    "a window that extends a named one": "SELECT id, sum(id) OVER (w ORDER BY id) AS s, "
    "sum(id) OVER (w ORDER BY id ROWS 1 PRECEDING) AS r FROM t WINDOW w AS (PARTITION BY a)",
    "a named window that extends another": "SELECT id, sum(id) OVER w2 AS s, count(*) OVER (w2 ROWS 1 PRECEDING) AS n "
    "FROM t WINDOW w AS (PARTITION BY a), w2 AS (w ORDER BY id)",
    "several percentiles": "SELECT a, percentile_cont(ARRAY[0.25, 0.5]) WITHIN GROUP (ORDER BY x) AS p FROM t "
    "GROUP BY a",
    "SQL/JSON constructors": "SELECT id, JSON_OBJECT('a' : a, 'w' : word ABSENT ON NULL RETURNING jsonb) AS o, "
    "JSON_ARRAY(a, word NULL ON NULL) AS r, word IS JSON SCALAR AS s FROM t",
    "SQL/JSON aggregates": "SELECT a, JSON_ARRAYAGG(word ORDER BY id RETURNING jsonb) AS w, "
    "JSON_OBJECTAGG(id : word ABSENT ON NULL RETURNING jsonb) FILTER (WHERE id < 20) AS o FROM t GROUP BY a",
    "SQL/JSON values": "SELECT t.id, CASE WHEN u.j IS NOT NULL THEN "
    "JSON_VALUE(u.j, '$.k' RETURNING int DEFAULT -1 ON EMPTY) END AS k, "
    "JSON_QUERY(u.j, '$.list' WITH WRAPPER) AS l FROM t LEFT JOIN u ON u.id = t.id "
    "WHERE JSON_EXISTS(u.j, '$.list[*] ? (@ > $m)' PASSING t.a AS m) IS NOT FALSE",
    "JSON_TABLE": "SELECT u.id, q.n, q.v, q.k FROM u, JSON_TABLE(u.j, '$' COLUMNS (k int PATH '$.k', "
    "NESTED PATH '$.list[*]' COLUMNS (n FOR ORDINALITY, v int PATH '$'))) AS q",
    "JSON_TABLE, or NULLs": "SELECT u.id, q.v FROM u "
    "LEFT JOIN JSON_TABLE(u.j, '$.list[*]' COLUMNS (v int PATH '$')) AS q ON q.v > 2",
    "records in JSON": "SELECT u.id, q.x, q.y, t.word FROM u CROSS JOIN jsonb_to_recordset(u.r) AS q (x int, y text) "
    "LEFT JOIN t ON t.id = q.x",
    "records in step": "SELECT u.id, q.x, q.g, q.n FROM u, ROWS FROM (jsonb_to_recordset(u.r) AS (x int), "
    "generate_series(1, 2)) WITH ORDINALITY AS q (x, g, n)",
    "XML": "SELECT t.id, xmlelement(name row, xmlattributes(t.a AS n), t.word, u.a)::text AS e, "
    "xmlserialize(content xmlforest(u.word, t.a AS k) AS text) AS f FROM t LEFT JOIN u ON u.id = t.id",
    "XMLTABLE": "SELECT u.id, q.n, q.k FROM u, XMLTABLE('/r/e' PASSING u.x COLUMNS n FOR ORDINALITY, k int PATH '@k') "
    "AS q",
    "normalized text, text by a pattern": "SELECT id, word IS NFC NORMALIZED AS f, "
    "substring(word SIMILAR '#\"w#\"_' ESCAPE '#') AS w, make_interval(days => a) > make_interval(1) AS d, "
    "trim(LEADING FROM word) AS b FROM t",
    "an order by an operator, in a window": "SELECT id, count(*) OVER (ORDER BY word USING ~>~) AS n FROM t",
    "JSON_ARRAY of a sorted subquery": "SELECT t.id, JSON_ARRAY(SELECT u.id FROM u WHERE u.a = t.a "
    "ORDER BY u.id DESC) AS l FROM t",
    "JSON_ARRAYAGG over a sorted subquery": "SELECT a, JSON_ARRAYAGG(word ABSENT ON NULL) AS w "
    "FROM (SELECT * FROM t ORDER BY x DESC, id) AS q GROUP BY a",
    "a LATERAL in parentheses": "SELECT u.id, q.n FROM (LATERAL (SELECT count(*) AS n FROM t) AS q RIGHT JOIN u "
    "ON u.a = q.n % 3)",
    "the first of the first": "SELECT DISTINCT ON (a) a, id, word FROM t ORDER BY a, id DESC LIMIT 2 OFFSET 1",
    "subtotals, the first": "SELECT a, v, sum(id) AS s FROM t GROUP BY ROLLUP (a, v) "
    "ORDER BY sum(id) DESC, a, v LIMIT 5",
    "subtotals, each once": "SELECT DISTINCT a, count(*) AS n FROM t GROUP BY CUBE (a, v)",
    "subtotals, the first of each": "SELECT DISTINCT ON (a) a, v, max(id) AS m FROM t GROUP BY ROLLUP (a, v) "
    "ORDER BY a, max(id), v LIMIT 3",
    "subtotals and windows": "SELECT a, v, sum(count(*)) OVER w AS s, rank() OVER (ORDER BY max(id), a, v) AS r, "
    "lag(max(id) + 1, 1, 0) OVER (w ORDER BY min(id), a, v) AS l FROM t GROUP BY GROUPING SETS ((a), (v), (a, v)) "
    "WINDOW w AS (PARTITION BY grouping(a))",
    "by a subquery": "SELECT (SELECT max(u.a) FROM u WHERE u.id = t.id) AS k, a + 1 AS b, count(*) AS n, max(v) AS m "
    "FROM t GROUP BY 1, a + 1 HAVING count(*) > 1",
    "by a subquery and a key": "SELECT id, word, (SELECT count(*) FROM u WHERE u.a = t.a) AS n, sum(x) AS s FROM t "
    "GROUP BY id, (SELECT count(*) FROM u WHERE u.a = t.a)",
    "a set of a set": "SELECT id, unnest(regexp_matches(word || v, '\\d', 'g')) AS d, generate_series(1, 2) AS g "
    "FROM t",
    "sets at two levels": "SELECT id, generate_series(1, generate_series(1, 2)) AS n, generate_series(7, 9) AS g "
    "FROM u",
    "whole rows": "SELECT t.id, k, k.* IS NULL AS missing, k.* IS NOT NULL AS full FROM t LEFT JOIN k ON k.id = t.id",
    "whole rows that are counted": "SELECT t.a, count(k.*) AS n, count(*) AS c, "
    "array_agg(k ORDER BY t.id, k.name, k.n) AS r FROM t LEFT JOIN k ON k.id = t.id GROUP BY t.a",
    "whole rows as JSON": "SELECT t.id, row_to_json(k) AS j, to_jsonb(k) AS b FROM t FULL JOIN k ON k.id = t.id",
    "whole rows without a partner": "SELECT t.id, (SELECT array_agg(k ORDER BY n) FROM k WHERE k.id = t.id) AS r "
    "FROM t LEFT JOIN k ON k.n = t.a WHERE k IS NULL",
    "whole rows of a view": "SELECT v.id, row_to_json(v) AS j FROM rows_of_k AS v",
    "merged columns with a name": "SELECT j.id, t.word, u.a FROM t FULL JOIN u USING (id) AS j",
}


def test_each_is_exact(ms: Millstream, database: str, writer: psycopg.Connection) -> None:
    """By `verify`, which gives rows that tie an order, as our plans do."""
    writer.execute(TABLES)
    if _takes(writer, f"{XML.rstrip().rstrip(';')}"):
        writer.execute(XML)
    known = {what: query for what, query in QUERIES.items() if _takes(writer, query)}
    assert len(known) >= 15
    exact_through(ms, database, known, [CHANGE])


def _takes(writer: psycopg.Connection, statement: str) -> bool:
    """Return True if the server's version, and how it was built, has the grammar of a statement."""
    try:
        with writer.transaction(force_rollback=True):
            writer.execute(statement.encode())
    except (psycopg.errors.SyntaxError, psycopg.errors.FeatureNotSupported):
        return False
    return True
