"""Follow the hints of refused queries: what the error tells the user to write is accepted.

`REFUSED` has queries that are refused, each with the stream tables or views that its hint asks for
instead. They must be accepted, and where the hint keeps the meaning, the last of them must have the
rows that PostgreSQL gives for the refused query. Hints of errors that are not about a query, and
refusals that no known query reaches, are not followed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import psycopg
import pytest

from millstream import Millstream
from millstream.errors import MillstreamError, QueryError

TABLES = """
    CREATE TYPE pair AS (a int, b int);
    CREATE TABLE orders (
        id int PRIMARY KEY, customer int, amount numeric(12, 2), note text, at timestamptz, on_day timestamp,
        tags text[], doc jsonb, length interval, span int4range, p pair, code varchar(10)
    );
    CREATE TABLE customers (id int PRIMARY KEY, region text, f float8);
    CREATE TABLE words (w text COLLATE "C");
    CREATE TABLE edges (a int, b int, label text, parts int[]);
    CREATE TABLE parent (id int PRIMARY KEY);
    CREATE TABLE child (extra int) INHERITS (parent);
    CREATE MATERIALIZED VIEW frozen AS SELECT id FROM orders;
    CREATE UNLOGGED TABLE fleeting (id int);
    CREATE FUNCTION twice(int) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN RETURN 2 * $1; END';
    CREATE FUNCTION record_of(int) RETURNS SETOF record LANGUAGE sql IMMUTABLE AS 'SELECT $1, $1 + 1';
    CREATE FUNCTION columns_of(int) RETURNS TABLE (x int, y int) LANGUAGE sql IMMUTABLE AS 'SELECT $1, $1 + 1';
    INSERT INTO customers SELECT n, 'n' || n % 3, n FROM generate_series(1, 5) AS n;
    INSERT INTO orders
    SELECT n, 1 + n % 6, n * 1.25, 'n' || n % 4, '2026-01-01 23:00+00'::timestamptz + n * interval '1 hour',
           '2026-01-01'::timestamp + n * interval '1 hour', ARRAY['x', 'n' || n], jsonb_build_array(
           jsonb_build_object('v', n)), n % 3 * interval '1 day', int4range(n % 3, n % 3 + 2), (n % 2, n % 3)::pair,
           chr(96 + n)
    FROM generate_series(1, 12) AS n;
    INSERT INTO words VALUES ('n1'), ('n2'), ('x');
    INSERT INTO edges VALUES (1, 2, 'a', '{1}'), (2, 3, 'ab', '{2,1}'), (3, 4, 'abc', '{0}'), (5, 1, 'b', NULL);
    INSERT INTO parent VALUES (1);
    INSERT INTO child VALUES (2, 2);
"""


@dataclass(frozen=True)
class Refused:
    """A query that is refused, words of its hint, and what following the hint leads to.

    A step is the query of a stream table, or a CREATE VIEW, or another statement; the last one is
    named `followed`, those before it `step1`, `step2`.
    """

    query: str
    hint: str
    steps: tuple[str, ...]
    same: bool = True
    """The hint keeps the meaning: the rows are those of the refused query."""


LIKE = "o.note || c.region LIKE '%' || w.w"
TWO_STEPS = "Make a stream table that has the expression as a column"
RECURSIVE = (
    "WITH RECURSIVE r AS (SELECT {0} FROM edges UNION{1} SELECT {2} "
    "FROM r JOIN edges e ON e.a = r.b){3} SELECT {4}"
)

W_F = "WHERE f::text = '2'"
BY_F = "SELECT f, count(*) AS n FROM customers{0} GROUP BY f"
WRITTEN = "Filter the rows in the WHERE clause"

REFUSED = [
    # -- conditions on how a group key is written
    Refused(f"SELECT c.id, q.n FROM customers c LEFT JOIN ({BY_F.format('')}) q ON q.f = c.id WHERE q.f::text = '2'",
            WRITTEN,
            (f"SELECT c.id, q.n FROM customers c JOIN ({BY_F.format(' ' + W_F)}) q ON q.f = c.id",)),
    Refused("SELECT f, id, count(*) AS n FROM customers GROUP BY f, ROLLUP (id) HAVING f::text = '2'", WRITTEN,
            (f"SELECT f, id, count(*) AS n FROM customers {W_F} GROUP BY f, ROLLUP (id)",)),
    # -- expressions over several tables
    Refused(f"SELECT c.id, o.id AS o FROM customers c CROSS JOIN orders o JOIN words w ON {LIKE}", TWO_STEPS,
            (f"SELECT c.id, o.id AS o, {LIKE} AS x FROM customers c CROSS JOIN orders o CROSS JOIN words w",
             "SELECT id, o FROM step1 WHERE x")),
    # -- grouping
    Refused("SELECT count(*) AS n FROM orders o "
            "GROUP BY ROLLUP ((SELECT max(c.id) FROM customers c WHERE c.id < o.id))",
            "Compute it in a subquery of FROM, and group by its column",
            ("SELECT count(*) AS n FROM (SELECT (SELECT max(c.id) FROM customers c WHERE c.id < o.id) AS k FROM "
             "orders o) x GROUP BY ROLLUP (x.k)",)),
    Refused("SELECT c.id, array_agg(o.id) AS ids FROM customers c JOIN (SELECT * FROM orders ORDER BY amount) o "
            "ON o.customer = c.id GROUP BY c.id", "Write the order into the call: array_agg(x ORDER BY y)",
            ("SELECT c.id, array_agg(o.id ORDER BY o.amount) AS ids FROM customers c JOIN orders o "
             "ON o.customer = c.id GROUP BY c.id",), same=False),
    Refused("SELECT FROM orders", "Select a constant: SELECT 1 AS one FROM ...",
            ("SELECT 1 AS one FROM orders",), same=False),
    # -- functions that are not immutable
    Refused("SELECT id, pg_typeof(at)::text AS t FROM orders", "call the function in a view over it",
            ("SELECT id, at FROM orders", "CREATE VIEW followed AS SELECT id, pg_typeof(at)::text AS t FROM step1")),
    Refused("SELECT id, random() AS r FROM orders", "call the function in a view over it",
            ("SELECT id FROM orders", "CREATE VIEW followed AS SELECT id, random() AS r FROM step1"), same=False),
    Refused("SELECT id FROM orders WHERE at < clock_timestamp()", "Use now()",
            ("SELECT id FROM orders WHERE at < now()",)),
    Refused("SELECT id, twice(id) AS t FROM orders", "ALTER FUNCTION public.twice(integer) IMMUTABLE",
            ("ALTER FUNCTION public.twice(integer) IMMUTABLE", "SELECT id, twice(id) AS t FROM orders")),
    # -- what PostgreSQL runs and does not take as a view
    Refused("SELECT ROW(id, customer) AS r FROM orders", "Write the fields of the row as columns, one by one",
            ("SELECT id, customer FROM orders",), same=False),
    Refused("SELECT c.id, a.r IS NULL AS n FROM customers c LEFT JOIN (SELECT customer, ROW(id, customer) AS r "
            "FROM orders) a ON a.customer = c.id", "Cast the row to a composite type of yours",
            ("CREATE TYPE numbers AS (id int, customer int)",
             "SELECT c.id, a.r IS NULL AS n FROM customers c LEFT JOIN (SELECT customer, ROW(id, customer)::numbers "
             "AS r FROM orders) a ON a.customer = c.id")),
    Refused("SELECT q.r = ROW(1, 2) AS x FROM (SELECT ROW(id, customer) AS r FROM orders UNION ALL SELECT ROW(id, id) "
            "FROM customers) q", "or select its columns one by one",
            ("SELECT ROW(q.id, q.customer) = ROW(1, 2) AS x FROM (SELECT id, customer FROM orders UNION ALL "
             "SELECT id, id FROM customers) q",)),
    Refused("SELECT id, id FROM orders", "Give each column a name of its own with AS",
            ("SELECT id, id AS again FROM orders",), same=False),
    Refused("WITH d AS (DELETE FROM edges RETURNING a) SELECT a FROM d", "Run the statement on its own",
            ("DELETE FROM edges WHERE a = 5", "SELECT a FROM edges"), same=False),
    Refused("SELECT id FROM nowhere", "Run the query in psql until it works", ("SELECT id FROM orders",), same=False),
    # -- clauses
    Refused("SELECT id FROM orders FOR UPDATE", "Leave it out", ("SELECT id FROM orders",)),
    Refused("SELECT id, note FROM orders ORDER BY note USING ~>~, id LIMIT 3", "Order by an expression or a collation",
            ('SELECT id, note FROM orders ORDER BY note COLLATE "C" DESC, id LIMIT 3',)),
    Refused("SELECT id FROM orders TABLESAMPLE BERNOULLI (10)", "Leave it out", ("SELECT id FROM orders",), same=False),
    Refused("SELECT id, current_user AS who FROM orders", "Write the name itself, or filter in a view",
            ("SELECT id, 'tester'::name AS who FROM orders",)),
    Refused("SELECT id FROM orders WHERE id IN (VALUES ((SELECT max(id) FROM orders)))",
            "Write it as SELECT ... UNION ALL SELECT ...",
            ("SELECT id FROM orders WHERE id IN (SELECT max(id) FROM orders)",)),
    Refused("SELECT id FROM (SELECT id, customer FROM orders ORDER BY -id) q LIMIT 3", "ORDER BY y LIMIT 10",
            ("SELECT id FROM (SELECT id, customer FROM orders) q ORDER BY -id LIMIT 3",)),
    Refused("SELECT DISTINCT ON (customer) customer, id FROM (SELECT customer, id FROM orders ORDER BY customer, -id) "
            "q", "ORDER BY k, y",
            ("SELECT DISTINCT ON (customer) customer, id FROM (SELECT customer, id FROM orders) q "
             "ORDER BY customer, -id",)),
    Refused("SELECT id FROM orders ORDER BY id LIMIT (SELECT count(*) FROM words)", "Write a number",
            ("SELECT id FROM orders ORDER BY id LIMIT 3",)),
    Refused("SELECT c.id, x.id AS o FROM customers c CROSS JOIN LATERAL "
            "(SELECT o.id FROM orders o WHERE o.customer = c.id ORDER BY o.id LIMIT c.id) x",
            "number the rows with row_number() and compare that",
            ("SELECT c.id, x.id AS o FROM customers c CROSS JOIN LATERAL (SELECT o.id, row_number() OVER (ORDER "
             "BY o.id) AS n "
             "FROM orders o WHERE o.customer = c.id) x WHERE x.n <= c.id",)),
    Refused("SELECT o.id, t.t FROM orders o LEFT JOIN LATERAL unnest(o.tags) AS t (t) ON t.t IN (SELECT w FROM words)",
            "Join the table and the function in a subquery of FROM",
            ("SELECT o.id, x.t FROM orders o LEFT JOIN (SELECT o.id, t.t FROM orders o CROSS JOIN LATERAL "
             "unnest(o.tags) AS t (t) WHERE t.t IN (SELECT w FROM words)) x ON x.id = o.id",)),
    Refused("SELECT id FROM ONLY parent", "Leave ONLY out", ("SELECT id FROM parent",), same=False),
    Refused("SELECT o.id, x.a FROM orders o LEFT JOIN (customers c JOIN LATERAL (SELECT o.id AS a) x ON true) ON true",
            "Join the tables in another order, without the parentheses",
            ("SELECT o.id, x.a FROM orders o LEFT JOIN customers c ON true LEFT JOIN LATERAL (SELECT o.id AS a) x "
             "ON c.id IS NOT NULL",)),
    Refused("SELECT o.id, c.id AS c FROM orders o FULL JOIN customers c ON o.customer = c.id "
            "AND (SELECT count(*) FROM edges e WHERE e.a = o.id AND e.b = c.id) > 0",
            "Write it as a LEFT JOIN, UNION ALL the rows of the other side without a match",
            ("SELECT o.id, c.id AS c FROM orders o LEFT JOIN customers c ON o.customer = c.id "
             "AND (SELECT count(*) FROM edges e WHERE e.a = o.id AND e.b = c.id) > 0 UNION ALL SELECT NULL, c.id "
             "FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id "
             "AND (SELECT count(*) FROM edges e WHERE e.a = o.id AND e.b = c.id) > 0)",)),
    Refused("SELECT c.region, (SELECT count(*) FROM orders o WHERE o.id < count(c.id)) AS n FROM customers c "
            "GROUP BY c.region",
            "Compute the aggregate in a subquery of FROM",
            ("SELECT g.region, (SELECT count(*) FROM orders o WHERE o.id < g.k) AS n "
             "FROM (SELECT c.region, count(c.id) AS k FROM customers c GROUP BY c.region) g",)),
    Refused("SELECT id FROM orders WHERE (id, customer) = (SELECT max(a), max(b) FROM edges)",
            "Compare each column with a subquery of its own",
            ("SELECT id FROM orders WHERE id = (SELECT max(a) FROM edges) AND customer = (SELECT max(b) FROM edges)",)),
    Refused("SELECT count(q.*) AS n FROM (SELECT id FROM orders) q", "Name the columns",
            ("SELECT count(q.id) AS n FROM (SELECT id FROM orders) q",)),
    Refused("SELECT ctid AS place, id FROM orders", "Use a column of the table", ("SELECT id FROM orders",),
            same=False),
    Refused("SELECT 1 AS one", "Make it a view", ("CREATE VIEW followed AS SELECT 1 AS one",)),
    Refused("SELECT id AS __ms_x FROM orders", "Give the column another name", ("SELECT id AS x FROM orders",)),
    # -- recursion
    Refused(RECURSIVE.format("a, b, label", "", "r.a, e.b, e.label", "", "a, b FROM r").replace(
                "e.a = r.b", "e.label LIKE r.label || '%'"),
            "Join the tables by an equality",
            (RECURSIVE.format("a, b, label", "", "r.a, e.b, e.label", "", "a, b FROM r").replace(
                "e.a = r.b", "e.a = r.b AND e.label LIKE r.label || '%'"),), same=False),
    Refused("WITH RECURSIVE r AS (SELECT a, b FROM edges UNION SELECT r.a, max(e.b) FROM (SELECT * FROM r) r "
            "JOIN edges e "
            "ON e.a = r.b GROUP BY r.a) SELECT a, b FROM r",
            "Apply it to the result of the recursion",
            (RECURSIVE.format("a, b", "", "r.a, e.b", "", "a, max(b) AS b FROM r GROUP BY a"),), same=False),
    Refused("WITH RECURSIVE r AS (SELECT id, doc FROM orders UNION SELECT o.id, o.doc FROM r JOIN orders o ON "
            "o.id = r.id + 1) "
            "SELECT id FROM r",
            "Use UNION ALL, or cast the column to text",
            ("WITH RECURSIVE r AS (SELECT id, doc::text AS doc FROM orders UNION SELECT o.id, o.doc::text FROM "
             "r JOIN orders o "
             "ON o.id = r.id + 1) SELECT id FROM r",)),
    Refused("WITH RECURSIVE r AS (SELECT a, b FROM edges UNION (SELECT r.a, e.b FROM r JOIN edges e ON e.a = r.b "
            "UNION ALL SELECT id, customer FROM orders)) SELECT a, b FROM r",
            "move the parts that do not read it to the non-recursive term",
            ("WITH RECURSIVE r AS ((SELECT a, b FROM edges UNION ALL SELECT id, customer FROM orders) "
             "UNION SELECT r.a, e.b FROM r JOIN edges e ON e.a = r.b) SELECT a, b FROM r",)),
    Refused("SELECT c.id, (WITH RECURSIVE r AS (SELECT c.id AS n UNION SELECT e.b FROM r JOIN edges e ON e.a = r.n) "
            "SELECT count(*) FROM r) AS n FROM customers c",
            "Run the recursion for all values of that column, select the column in both terms, and join on it",
            ("WITH RECURSIVE r AS (SELECT c.id AS start, c.id AS n FROM customers c UNION SELECT r.start, e.b FROM r "
             "JOIN edges e ON e.a = r.n) SELECT c.id, count(*) AS n FROM customers c JOIN r ON r.start = c.id "
             "GROUP BY c.id",)),
    Refused(RECURSIVE.format("a, b, label", " ALL", "r.a, e.b, e.label", " SEARCH DEPTH FIRST BY a, label SET o",
                             "a, b FROM r ORDER BY o, b LIMIT 3"),
            "Search by one column",
            (RECURSIVE.format("a, b, label", " ALL", "r.a, e.b, e.label", " SEARCH DEPTH FIRST BY label SET o",
                              "a, b FROM r ORDER BY o, b LIMIT 3"),), same=False),
    Refused(RECURSIVE.format("a, b, parts", " ALL", "r.a, e.b, e.parts", " SEARCH DEPTH FIRST BY parts SET o",
                             "a, b FROM r ORDER BY o, b LIMIT 3"),
            "Search by one of its elements, x[1]",
            (RECURSIVE.format("a, b, parts[1] AS part", " ALL", "r.a, e.b, e.parts[1]",
                              " SEARCH DEPTH FIRST BY part SET o", "a, b FROM r ORDER BY o, b LIMIT 3"),), same=False),
    Refused("WITH RECURSIVE r AS (SELECT a, b FROM edges UNION ALL SELECT x.a, e.b FROM (SELECT * FROM r) x "
            "JOIN edges e "
            "ON e.a = x.b) SEARCH DEPTH FIRST BY b SET o SELECT a, b FROM r ORDER BY o LIMIT 3",
            "Join the recursive table itself",
            (RECURSIVE.format("a, b", " ALL", "r.a, e.b", " SEARCH DEPTH FIRST BY b SET o",
                              "a, b FROM r ORDER BY o LIMIT 3"),), same=False),
    Refused(RECURSIVE.format("a, b", " ALL", "r.a, e.b", " SEARCH DEPTH FIRST BY b SET o", "a, b, o[1] IS NULL "
    "AS n FROM r"),
            "compute a path of your own: path || id in both terms",
            (RECURSIVE.format("a, b, ARRAY[b] AS path", " ALL", "r.a, e.b, path || e.b", "",
                              "a, b, path[1] IS NULL AS n FROM r"),)),
    # -- sources
    Refused("SELECT id FROM frozen", "Read the tables under it instead", ("SELECT id FROM orders",), same=False),
    Refused("SELECT id FROM fleeting", "ALTER TABLE ... SET LOGGED",
            ("ALTER TABLE fleeting SET LOGGED", "SELECT id FROM fleeting")),
    Refused("SELECT relname FROM pg_class", "Copy what you need into a table of your own",
            ("CREATE TABLE copied (relname name)", "SELECT relname FROM copied"), same=False),
    Refused("SELECT name FROM millstream.stream_tables", "Name a table of your own, or a stream table",
            ("SELECT id FROM orders", "SELECT id FROM step1"), same=False),
]  # fmt: skip


@pytest.fixture
def made(ms: Millstream) -> Millstream:
    with psycopg.connect(ms.app.dsn, autocommit=True) as conn:
        conn.execute(TABLES)
    return ms


@pytest.mark.spark
def test_the_workaround_of_every_refused_query_is_accepted_and_has_its_rows(
    made: Millstream, database: str
) -> None:
    with psycopg.connect(
        database, autocommit=True, options="-c timezone=UTC", prepare_threshold=None
    ) as conn:
        wrong = {case.query: wrong for case in REFUSED if (wrong := _wrong_with(made, conn, case))}
    assert wrong == {}


def _wrong_with(ms: Millstream, conn: psycopg.Connection, case: Refused) -> str:
    """Follow the hint of a refused query; return what is wrong with it."""
    try:
        ms.create_stream_table("refused", case.query)
    except QueryError as error:
        hint = error.hint
    else:
        ms.drop_stream_table("refused")
        return "it is not refused"
    if case.hint not in hint:
        return f"the hint is: {hint}"
    made = list[str]()
    try:
        _follow(ms, conn, case, made)
        same = not case.same or _rows(conn, case.query) == _rows(conn, "SELECT * FROM followed")
        return "" if same else "the rows differ"
    except (MillstreamError, psycopg.Error) as error:
        return str(error)
    finally:
        _forget(ms, conn, made)


def _follow(ms: Millstream, conn: psycopg.Connection, case: Refused, made: list[str]) -> None:
    """Do what the hint says; enter the stream tables that this makes."""
    for number, step in enumerate(case.steps, 1):
        if not step.startswith(("SELECT", "WITH")):
            conn.execute(step.encode())
            continue
        name = "followed" if number == len(case.steps) else f"step{number}"
        ms.create_stream_table(name, step)
        made.append(name)


def _rows(conn: psycopg.Connection, query: str) -> Counter[tuple[object, ...]]:
    """The rows of a query as a bag, each value in its text, without the column that tells rows
    apart.
    """
    with conn.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({query}) AS q".encode())
        assert cursor.description is not None
        shown = [
            place for place, column in enumerate(cursor.description) if column.name != "__ms_row_id"
        ]
        return Counter(tuple(str(row[place]) for place in shown) for row in cursor.fetchall())


def _forget(ms: Millstream, conn: psycopg.Connection, made: list[str]) -> None:
    if "followed" not in made:
        conn.execute("DROP VIEW IF EXISTS followed")
    for name in reversed(made):
        ms.drop_stream_table(name)
