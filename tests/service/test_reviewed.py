"""Defects that a hostile review found, each once."""

from __future__ import annotations

import traceback

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

import millstream
from millstream import Settings
from millstream.catalog import stream_tables
from millstream.client import Millstream
from millstream.errors import BadQuery, BadSetting, MillstreamError, RefreshFailed, TargetMoved, Unsupported
from millstream.postgres.connection import connect, pinned
from millstream.testing import oracle

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(ms: Millstream, database: str) -> psycopg.Connection:
    return psycopg.connect(database, autocommit=True)


def test_a_subscript_of_an_array_from_a_subquery_is_not_shifted(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, a int[], k int); INSERT INTO t VALUES (1, '{10,20,30}', 7)")
    query = "SELECT id, y[2] AS x, y[1] AS w FROM (SELECT id, a || k AS y FROM t) AS q WHERE y[4] = 7"
    ms.create_stream_table("st", query)
    oracle.check(ms.app.conn, query, "st")
    assert writer.execute("SELECT x, w FROM st").fetchall() == [(20, 10)]


def test_a_mark_at_the_beginning_of_the_first_text_is_kept(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (note text, id int); INSERT INTO t VALUES (U&'\\FEFFfirst', 1), ('', 2), (NULL, 3)")
    ms.create_stream_table("st", "SELECT note, id FROM t")
    oracle.check(ms.app.conn, "SELECT note, id FROM t", "st")
    writer.execute("INSERT INTO t VALUES (U&'\\FEFFsecond', 4)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, "SELECT note, id FROM t", "st")


def test_drop_takes_neither_a_renamed_table_nor_one_that_has_its_name(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY)")
    ms.create_stream_table("st", "SELECT id FROM t")
    writer.execute("ALTER TABLE st RENAME TO st_kept; CREATE TABLE st AS SELECT 'precious' AS word")
    with pytest.raises(TargetMoved, match="st_kept"):
        ms.drop_stream_table("st")
    ms.drop_stream_table("st", forget=True)
    assert writer.execute("SELECT word FROM st").fetchall() == [("precious",)]
    assert writer.execute("SELECT count(*) FROM st_kept").fetchone() == (0,)
    assert ms.status() == []


def test_a_foreign_key_on_a_stream_table_cascades_once(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY, p int)")
    writer.execute("INSERT INTO t VALUES (1), (2), (3)")
    ms.create_stream_table("a_st", "SELECT id FROM t", schedule="continuous")
    ms.create_stream_table("b_st", "SELECT count(*) AS n FROM c", schedule="continuous")
    writer.execute("INSERT INTO c VALUES (1, 1), (2, 2), (3, 3)")
    writer.execute("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES a_st (id) ON DELETE CASCADE")
    writer.execute("DELETE FROM t WHERE id = 1; INSERT INTO c VALUES (4, 2)")
    for _ in range(3):
        ms.tick()
    oracle.check(ms.app.conn, "SELECT count(*) AS n FROM c", "b_st")


def test_having_guards_the_select_list(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, x int, y int)")
    writer.execute("INSERT INTO t VALUES (1, 1, 4, 2), (2, 2, 5, 0)")
    query = "SELECT g, sum(x) / sum(y) AS q FROM t GROUP BY g HAVING sum(y) <> 0"
    ms.create_stream_table("st", query)
    writer.execute("UPDATE t SET y = 0 WHERE id = 1; INSERT INTO t VALUES (3, 2, 1, 3)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, query, "st")
    assert writer.execute("SELECT * FROM st").fetchall() == [(2, 2)]


# -- the search path ---------------------------------------------------------------------------

TRAPS = """
    CREATE FUNCTION public.unnest(integer[]) RETURNS SETOF integer LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.count(anyelement) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.current_schema() RETURNS name LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.parse_ident(text) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.sprung(tid, tid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE OPERATOR public.= (LEFTARG = tid, RIGHTARG = tid, FUNCTION = public.sprung);
    CREATE FUNCTION public.sprung(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.sprung)
"""


def test_functions_of_others_with_the_servers_names_are_not_called_by_us(
    database: str, spark: SparkSession, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, v int, w text); CREATE TABLE u (g int PRIMARY KEY)")
    writer.execute("INSERT INTO t SELECT i, i % 3, i, i FROM generate_series(1, 9) AS i; INSERT INTO u VALUES (1), (2)")
    writer.execute(TRAPS)
    query = "SELECT t.g, sum(t.v) AS s, max(t.w) AS m FROM t JOIN u ON u.g = t.g GROUP BY t.g"
    with millstream.connect(make_conninfo(database, options="-csearch_path=public,pg_catalog"), spark=spark) as ms:
        ms.create_stream_table("st", query)
        writer.execute("UPDATE t SET v = v + 1 WHERE id IN (1, 2); DELETE FROM t WHERE id = 8")
        assert ms.refresh("st").action == "DIFFERENTIAL"
        assert ms.verify("st").ok
        ms.drop_stream_table("st")


def test_scans_run_with_our_path_too(database: str) -> None:
    with psycopg.connect(pinned(make_conninfo(database, options="-csearch_path=public"))) as conn:
        assert conn.execute("SHOW search_path").fetchone() == ("pg_catalog, pg_temp",)


def test_names_of_the_user_are_read_along_the_users_path(
    database: str, spark: SparkSession, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE SCHEMA millstream_app; CREATE TABLE millstream_app.t (id int PRIMARY KEY)")
    writer.execute("CREATE TABLE public.t (id text); INSERT INTO millstream_app.t VALUES (1)")
    with millstream.connect(make_conninfo(database, options="-csearch_path=millstream_app"), spark=spark) as ms:
        ms.create_stream_table("st", "SELECT id FROM t")
        assert writer.execute("SELECT id FROM millstream_app.st").fetchall() == [(1,)]
        assert ms.refresh("st").name == "st"
        assert ms.app.conn.execute("SHOW search_path").fetchone() == ("pg_catalog, pg_temp",)


def test_a_path_of_our_own_schemas_does_not_show_them_to_the_query(
    database: str, spark: SparkSession, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE TABLE public.sources (id int PRIMARY KEY); INSERT INTO public.sources VALUES (7)")
    with millstream.connect(make_conninfo(database, options="-csearch_path=millstream,public"), spark=spark) as ms:
        ms.create_stream_table("st", "SELECT id FROM sources")
        assert writer.execute("SELECT id FROM public.st").fetchall() == [(7,)]


def test_an_operator_that_the_path_decides_is_refused_where_ours_would_mean_another(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE EXTENSION citext; CREATE TABLE t (id int PRIMARY KEY, c citext)")
    with pytest.raises(Unsupported, match="syntax"):
        ms.create_stream_table("st", "SELECT id, NULLIF(c, 'x') AS c FROM t")


def test_a_key_of_an_extensions_type_finds_its_rows(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE EXTENSION citext; CREATE TABLE t (c citext PRIMARY KEY, v int)")
    writer.execute("INSERT INTO t VALUES ('a', 1), ('b', 2)")
    ms.create_stream_table("st", "SELECT c, v FROM t")
    writer.execute("UPDATE t SET c = 'A' WHERE c = 'a'; DELETE FROM t WHERE c = 'B'; INSERT INTO t VALUES ('x', 3)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    assert sorted(writer.execute("SELECT c, v FROM st").fetchall()) == [("A", 1), ("x", 3)]


# -- names and namespaces in the query ---------------------------------------------------------


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
    writer.execute("CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE c (id int PRIMARY KEY, v int)")
    writer.execute("CREATE TABLE b (id int PRIMARY KEY, v int, w int); INSERT INTO b VALUES (1, 20, 2), (2, 30, 1)")
    writer.execute("INSERT INTO a VALUES (1, 5), (2, 6), (3, 7); INSERT INTO c VALUES (1, 50), (2, 60)")
    ms.create_stream_table("st", query)
    oracle.check(ms.app.conn, query, "st")
    writer.execute("UPDATE a SET v = v + 1 WHERE id = 1; UPDATE b SET w = 3 WHERE id = 2; INSERT INTO c VALUES (3, 70)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, query, "st")


def test_names_that_are_the_same_after_63_bytes_are_postgresqls_own_error(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with pytest.raises(BadQuery, match="specified more than once"):
        ms.create_stream_table("st", f'SELECT id AS "{"k" * 63}a", v AS "{"k" * 63}b" FROM t')


@pytest.mark.parametrize("query", ["SELECT sum(note ORDER BY id) AS s FROM t", "SELECT max(word) AS m FROM t"])
def test_an_aggregate_from_outside_with_a_name_of_the_servers_is_that_aggregate(
    ms: Millstream, writer: psycopg.Connection, query: str
) -> None:
    writer.execute("CREATE EXTENSION citext; CREATE TABLE t (id int PRIMARY KEY, note text, word citext)")
    writer.execute("CREATE AGGREGATE sum (text) (SFUNC = textcat, STYPE = text)")
    ms.create_stream_table("st", query)
    writer.execute("INSERT INTO t VALUES (1, 'a', 'B'), (2, 'c', 'a'), (3, NULL, 'b')")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    assert ms.verify("st").ok


# -- what errors tell --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:hush@127.0.0.1:1/nowhere",
        "host=127.0.0.1 port=1 user=me password=hush sslpassword=hush",
        "postgresql://me:hush@127.0.0.1:none/nowhere?x",
        "user=me password=hush hush",
    ],
)
def test_no_error_tells_a_password(dsn: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        connect(dsn)
    assert "hush" not in str(caught.value.as_dict())
    assert "hush" not in "".join(traceback.format_exception(caught.value, chain=True)[1:])


# -- what crosses a join -----------------------------------------------------------------------

GUARDED = {
    "a cast": "SELECT b.g, sum(a.txt::int) AS s FROM a JOIN b ON b.id = a.b WHERE b.kind = 'number' GROUP BY b.g",
    "a division": "SELECT count(a.x / a.y) AS n, max(a.x / a.y) AS m FROM a JOIN b ON b.id = a.b AND b.kind = 'number'",
    "a filter": "SELECT b.g, count(*) FILTER (WHERE a.txt::int > 1) AS n FROM a JOIN b ON b.id = a.b "
    "WHERE b.kind = 'number' GROUP BY b.g",
    "a key": "SELECT a.txt::int AS k, count(*) AS n FROM a JOIN b ON b.id = a.b WHERE b.kind = 'number' "
    "GROUP BY a.txt::int",
    "a partition": "SELECT a.id, rank() OVER (PARTITION BY a.x / a.y ORDER BY a.txt::int, a.id) AS k FROM a "
    "JOIN b ON b.id = a.b WHERE b.kind = 'number'",
    "a semi-join": "SELECT sum(a.txt::int) AS s FROM a WHERE EXISTS "
    "(SELECT FROM b WHERE b.id = a.b AND b.kind = 'number')",
}


@pytest.mark.parametrize("what", GUARDED)
def test_what_a_join_leaves_out_is_not_computed_with(ms: Millstream, writer: psycopg.Connection, what: str) -> None:
    writer.execute("CREATE TABLE a (id int PRIMARY KEY, b int, txt text, x int, y int); CREATE INDEX ON a (b)")
    writer.execute("CREATE TABLE b (id int PRIMARY KEY, kind text, g int)")
    writer.execute("INSERT INTO b VALUES (1, 'number', 1), (2, 'word', 1), (3, 'number', 2)")
    writer.execute("INSERT INTO a VALUES (1, 1, '5', 6, 3), (2, 2, 'five', 6, 0), (3, 3, '7', 8, 2), (4, 9, '', 1, 0)")
    ms.create_stream_table("st", GUARDED[what], refresh_mode="DIFFERENTIAL")
    for change in (
        "INSERT INTO a VALUES (5, 2, 'six', 1, 0), (6, 1, '12', 9, 3); UPDATE a SET txt = 'seven' WHERE id = 2",
        "UPDATE b SET kind = 'word' WHERE id = 3; DELETE FROM a WHERE id = 1",
        "DELETE FROM a WHERE id IN (2, 5); UPDATE b SET kind = 'number' WHERE id = 2",
    ):
        writer.execute(change)
        assert ms.refresh("st").action == "DIFFERENTIAL"
        oracle.check(ms.app.conn, GUARDED[what], "st")
    writer.execute("INSERT INTO a VALUES (7, 1, 'eight', 1, 0)")
    with pytest.raises(MillstreamError):
        ms.refresh("st")


COMPARED = {
    "an average of more digits": "SELECT t.id FROM t WHERE t.x > (SELECT avg(CASE WHEN u.id = 3 THEN 1 ELSE 0 END) "
    "FROM u WHERE u.g = t.g)",
    "of any kind": "SELECT t.id, u.id AS other FROM t JOIN u ON u.g = t.g AND t.x <= u.x",
    "with integers": "SELECT t.id, u.id AS other FROM t JOIN u ON u.g = t.g WHERE t.id < u.x OR t.x <> u.id",
    "padded": "SELECT t.id, u.id AS other FROM t LEFT JOIN u ON u.g = t.g AND t.x >= u.x",
}


@pytest.mark.parametrize("what", COMPARED)
def test_numbers_of_any_digits_are_compared_across_tables(
    ms: Millstream, writer: psycopg.Connection, what: str
) -> None:
    for table in "tu":
        writer.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, g int, x numeric)".encode())
        writer.execute(f"CREATE INDEX ON {table} (g)".encode())
    values = [
        "0", "1", "-1", "0.05", "0.5", "0.50", "-0.5", "-0.55", "12", "12.5", "-12", "-12.5", "99", "100", "NULL",
        "0.000000000000000000000001", "0.000000000000000000000002", "-0.000000000000000000000001", "'NaN'",
        "123456789012345678901234567890.5", "-123456789012345678901234567890", "'Infinity'", "'-Infinity'",
    ]  # fmt: skip
    for n, value in enumerate(values):
        writer.execute(f"INSERT INTO t VALUES ({n}, {n % 2}, {value})".encode())
        writer.execute(f"INSERT INTO u VALUES ({n}, {n % 2}, {value})".encode())
    ms.create_stream_table("st", COMPARED[what], refresh_mode="DIFFERENTIAL")
    oracle.check(ms.app.conn, COMPARED[what], "st")
    writer.execute("UPDATE t SET g = 1 - g WHERE id % 3 = 0; DELETE FROM u WHERE id = 4; UPDATE u SET x = x / 7")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, COMPARED[what], "st")


def test_numbers_without_their_last_digits_are_added(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, x numeric(3,-2))")
    writer.execute("INSERT INTO t SELECT n, n % 2, n * 150 FROM generate_series(1, 9) AS n")
    query = "SELECT g, sum(x) AS s, avg(x) AS a, min(x) AS l, sum(x * 2) AS d FROM t GROUP BY g"
    ms.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    oracle.check(ms.app.conn, query, "st")
    writer.execute(
        "UPDATE t SET x = 99900 WHERE id = 3; DELETE FROM t WHERE id IN (2, 5); INSERT INTO t VALUES (10, 3, 49)"
    )
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, query, "st")


@pytest.mark.parametrize("analyzed", [False, True])
def test_a_table_without_statistics_is_looked_up_as_far_as_the_limit(
    database: str, spark: SparkSession, analyzed: bool
) -> None:
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("CREATE TABLE a (id int PRIMARY KEY, b int); CREATE TABLE b (id int, x int)")
        writer.execute("ALTER TABLE b SET (autovacuum_enabled = false); CREATE INDEX ON b (id)")
        writer.execute("INSERT INTO b SELECT n, n FROM generate_series(1, 20000) AS n")
        if analyzed:
            # What the statistics say counts: one value, very often.
            writer.execute("UPDATE b SET id = 7; ANALYZE b; UPDATE b SET id = x WHERE id = 7")
        with millstream.connect(database, spark=spark, settings=Settings(max_lookup_rows=50)) as ms:
            ms.create_stream_table("st", "SELECT a.id, b.x FROM a JOIN b ON b.id = a.b")
            writer.execute("INSERT INTO a VALUES (1, 7), (2, 8)")
            report = ms.refresh("st")
            assert ms.verify("st").ok
    paths = {one.alias: (one.path, one.rows) for one in report.inputs if one.path != "changes"}
    assert paths == {"b": ("read", 20000) if analyzed else ("lookup", 2)}


LONG = "SELECT string_agg(md5(i::text), '') FROM generate_series({}, {} + 400) AS i"


@pytest.mark.parametrize(
    "query", ["SELECT word, count(*) AS n FROM t GROUP BY word", "SELECT DISTINCT id % 2 AS odd, word FROM t"]
)
@pytest.mark.parametrize("first", [True, False])
def test_keys_too_long_for_a_unique_index_are_kept(
    ms: Millstream, writer: psycopg.Connection, query: str, first: bool
) -> None:
    writer.execute("CREATE TABLE t (id int, word text); INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'a')")
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


# -- the table of a stream table ---------------------------------------------------------------


def test_a_table_that_has_the_name_by_now_is_left_alone(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE o (id int PRIMARY KEY, v int); INSERT INTO o VALUES (1, 1), (2, 2)")
    ms.create_stream_table("x", "SELECT id, v FROM o", schedule="1h")
    writer.execute("ALTER TABLE x RENAME TO x_old; CREATE TABLE x (id int PRIMARY KEY, v int)")
    writer.execute("CREATE UNIQUE INDEX ON x (id) NULLS NOT DISTINCT; INSERT INTO x VALUES (99, 99)")
    for change, full in (("SELECT 1", False), ("INSERT INTO o VALUES (3, 3)", False), ("SELECT 1", True)):
        writer.execute(change.encode())
        with pytest.raises(TargetMoved, match="renamed"):
            ms.refresh("x", full=full)
        assert writer.execute("SELECT * FROM x").fetchall() == [(99, 99)]
    writer.execute("DROP TABLE x; ALTER TABLE x_old RENAME TO x")
    assert ms.refresh("x").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, "SELECT id, v FROM o", "x")


def test_one_that_is_gone_is_told_so(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE o (id int PRIMARY KEY, v int); INSERT INTO o VALUES (1, 1)")
    ms.create_stream_table("x", "SELECT id, v FROM o", schedule="1h")
    writer.execute("DROP TABLE x; INSERT INTO o VALUES (2, 2)")
    with pytest.raises(TargetMoved, match="dropped"):
        ms.refresh("x")


# -- rows that fail ------------------------------------------------------------------------------


def test_a_row_that_fails_and_goes_is_no_trouble_any_more(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE d (id int PRIMARY KEY, v int); INSERT INTO d VALUES (1, 1), (2, 0)")
    queries = {
        "rows": "SELECT id, 10 / v AS q FROM d WHERE id <> 2",
        "groups": "SELECT count(*) AS n FROM d WHERE id <> 2 AND 10 / v > 1",
    }
    for name, query in queries.items():
        ms.create_stream_table(name, query, schedule="1h", refresh_mode="DIFFERENTIAL")
    writer.execute("INSERT INTO d VALUES (3, 0)")
    for name in queries:
        with pytest.raises(RefreshFailed, match="division by zero"):
            ms.refresh(name)
    writer.execute("UPDATE d SET v = 5 WHERE id = 3; INSERT INTO d VALUES (4, 4)")
    for name, query in queries.items():
        assert ms.refresh(name).action == "DIFFERENTIAL"
        oracle.check(ms.app.conn, query, name)


def test_a_sum_that_leaves_its_range_is_an_error(ms: Millstream, writer: psycopg.Connection) -> None:
    query = "SELECT g, sum(v) AS s, avg(v) AS m FROM f GROUP BY g"
    writer.execute("CREATE TABLE f (id int PRIMARY KEY, g int, v float8); INSERT INTO f VALUES (1, 1, 1e308)")
    ms.create_stream_table("st", query, schedule="1h")
    writer.execute("INSERT INTO f VALUES (2, 1, 1e308)")
    with pytest.raises(RefreshFailed, match="out of range"):
        ms.refresh("st")
    writer.execute("UPDATE f SET v = 'Infinity' WHERE id = 2")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, query, "st")


@pytest.mark.parametrize("schema", ["millstream", "millstream_state", "pg_catalog", "information_schema"])
def test_schemas_of_the_servers_and_ours_are_not_for_stream_tables(
    ms: Millstream, writer: psycopg.Connection, schema: str
) -> None:
    writer.execute("CREATE TABLE o (id int PRIMARY KEY)")
    with pytest.raises(BadSetting, match="schema of your own"):
        ms.create_stream_table(f"{schema}.x", "SELECT id FROM o")
    assert stream_tables.every(ms.app.conn) == []
