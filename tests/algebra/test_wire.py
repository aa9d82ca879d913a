"""A value travels by its type's own output and input functions, whatever casts a user has defined.

`x::text` and `text::type` call a user-defined cast where there is one: what it returned was stored,
and its code ran with the rights of the role that runs Millstream. Here every user-defined type has
casts to and from text that raise.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream.algebra import text_io
from millstream.client import Millstream
from millstream.errors import Unsupported
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle

pytestmark = pytest.mark.spark

DEFINITIONS = """
    CREATE SCHEMA "Odd {types}";
    SET search_path = "Odd {types}", public;
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'so "so"', '', 'NULL');
    CREATE TYPE pair AS (n int, m mood);
    CREATE TYPE span AS RANGE (subtype = float8);
    CREATE DOMAIN temper AS mood;
    CREATE DOMAIN duo AS pair;
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE FUNCTION printed(anyelement) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'a cast to text was called'; END $$;
"""
# Type -> values, as SQL.
TYPES: dict[str, tuple[str, ...]] = {
    "mood": ("'sad'", "'ok'", "'so \"so\"'", "''", "'NULL'", "NULL"),
    "temper": ("'ok'", "NULL", "'sad'", "'so \"so\"'"),
    "mood[]": ("'{sad,NULL}'", "'{}'", "NULL", '\'[2:3]={ok,"so \\"so\\""}\''),
    "pair": ("ROW(1, 'sad')", "ROW(NULL, NULL)", "NULL", "ROW(2, 'so \"so\"')"),
    "duo": ("ROW(1, 'sad')", "ROW(NULL, NULL)", "NULL"),
    "pair[]": ("ARRAY[ROW(1, 'ok')::pair, NULL]", "NULL", "'{}'"),
    "span": ("'[1,2)'", "'empty'", "NULL", "'(,)'"),
    "spans": ("'{[1,2),[3,4)}'", "'{}'", "NULL"),
    "positive": ("1", "NULL", "7"),
    "positive[]": ("'{1,2}'", "NULL", "'{}'"),
}
_NAMES = {"spans": "multirange_of_span"}
COLUMNS = {type_: f"c{number}" for number, type_ in enumerate(TYPES)}
CAST = ("mood", "mood[]", "pair", "pair[]", "span", "multirange_of_span", "positive[]")
# Types that Spark's equality holds for.
KEYS = ("mood", "temper", "positive")
# Those that PostgreSQL has operators for: it has none for a domain over an enum.
COMPARED = ("mood", "positive")


def _type(type_: str) -> str:
    return _NAMES.get(type_, type_)


@pytest.fixture
def writer(ms: Millstream, database: str) -> Iterator[psycopg.Connection]:
    """A table of all user-defined types, and a connection that writes to it."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            DEFINITIONS.replace(
                "float8)", "float8, multirange_type_name = multirange_of_span)"
            ).encode()
        )
        columns = ", ".join(f"{name} {_type(type_)}" for type_, name in COLUMNS.items())
        conn.execute(f"CREATE TABLE public.t (id int PRIMARY KEY, grp int, {columns})".encode())
        for number in range(6):
            insert(conn, number)
        ms.app.witness = witness
        yield conn


def insert(conn: psycopg.Connection, number: int) -> None:
    """A row with the number-th value of each type."""
    values = ", ".join(values[number % len(values)] for values in TYPES.values())
    next_id = "(SELECT coalesce(max(id), 0) + 1 FROM t)"
    conn.execute(f"INSERT INTO t VALUES ({next_id}, {number % 2}, {values})".encode())


def define_casts(conn: psycopg.Connection) -> None:
    """Casts to and from text and varchar, of every type that can have them; all of them raise."""
    for number, type_ in enumerate(CAST):
        for text in ("text", "varchar"):
            # One function each: a polymorphic one cannot be that of a cast.
            body = f"AS $$ BEGIN RAISE EXCEPTION 'a cast between {text} and {type_} was called'; END $$"
            for name, source, target in (
                (f"out_{number}_{text}", type_, text),
                (f"in_{number}_{text}", text, type_),
            ):
                made = f"CREATE FUNCTION {name}({source}) RETURNS {target} LANGUAGE plpgsql IMMUTABLE {body}"
                conn.execute(
                    f"{made}; CREATE CAST ({source} AS {target}) WITH FUNCTION {name}({source})".encode()
                )


def witness(now: Cut, job: Job, report: RefreshReport) -> None:
    oracle.check(now.conn, job.table.query, job.table.qualified)


def rounds(ms: Millstream, writer: psycopg.Connection) -> None:
    """Change the table in several ways; each refresh is differential, and compared by the oracle
    and by verify.
    """
    names = [table.name for table in ms.status()]
    for number in range(5):
        insert(writer, number)
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    writer.execute("UPDATE t SET grp = 1 - grp WHERE id % 2 = 0")
    writer.execute("DELETE FROM t WHERE id % 3 = 0")
    insert(writer, 0)
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    for name in names:
        report = ms.refresh(name, full=True)
        assert (report.action, report.rows_changed) == ("FULL", 0)
        verified = ms.verify(name)
        assert verified.ok
        if "_" not in name:
            # Those with values of every type; the others are read by Spark in the same way.
            assert ms.table(name).count() == verified.rows
    assert staged_types(ms) == []


def staged_types(ms: Millstream) -> list[tuple[str, str]]:
    """The columns of our temporary tables whose type is not built in."""
    query = (
        "SELECT a.attrelid::regclass::text, a.atttypid::regtype::text FROM pg_attribute AS a "
        "JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind = 'r' "
        "WHERE c.relnamespace = pg_my_temp_schema() AND a.atttypid >= 16384"
    )
    return ms.app.conn.execute(query).fetchall()


def queries() -> dict[str, str]:
    """Each type as a value, of a table with and without a key, through a join; and in every
    position it can have.
    """
    every = ", ".join(COLUMNS.values())
    joined = ", ".join(f"b.{name}" for name in COLUMNS.values())
    single = [name for type_, name in COLUMNS.items() if "[" not in type_]
    holistic = ", ".join(f"array_agg({name} ORDER BY id) AS {name}" for name in single)
    found = {
        "carried": f"SELECT id, {every} FROM t",
        "bag": f"SELECT {every} FROM t WHERE grp = 0",
        "joined": f"SELECT a.id, {joined} FROM t AS a JOIN t AS b ON b.id = a.id + 1",
        "gathered": f"SELECT grp, {holistic} FROM t GROUP BY grp",
        "windowed": f"SELECT id, {every}, row_number() OVER (PARTITION BY grp ORDER BY id) AS n FROM t",
        "limited": f"SELECT id, {every} FROM t ORDER BY id DESC LIMIT 4",
        "inner_limit": f"SELECT q.id, {every} FROM (SELECT * FROM t ORDER BY id DESC LIMIT 4) AS q WHERE q.grp = 0",
        "united": f"SELECT id, {every} FROM t UNION ALL SELECT -id, {every} FROM t",
        "recursive": "WITH RECURSIVE r (id, c0, c3) AS (SELECT id, c0, c3 FROM t WHERE id < 3 "
        "UNION ALL SELECT t.id, t.c0, t.c3 FROM r JOIN t ON t.id = r.id + 2) SELECT id, c0, c3 FROM r",
        "reached": "WITH RECURSIVE r (id, c0) AS (SELECT id, c0 FROM t WHERE id < 3 "
        "UNION SELECT t.id, t.c0 FROM r JOIN t ON t.id = r.id + 2) SELECT id, c0 FROM r",
    }
    for type_ in KEYS:
        name = COLUMNS[type_]
        found |= {
            f"grouped_{name}": f"SELECT {name}, count(*) AS n, max(id) AS last FROM t GROUP BY {name}",
            f"distinct_{name}": f"SELECT DISTINCT {name} FROM t",
            f"nested_{name}": f"SELECT n, count(*) AS k FROM (SELECT {name}, count(*) AS n FROM t "
            f"GROUP BY {name}) AS q GROUP BY n",
            f"partitioned_{name}": f"SELECT id, {name}, count(*) OVER (PARTITION BY {name}) AS n FROM t",
        }
    for type_ in COMPARED:
        name = COLUMNS[type_]
        found |= {
            f"matched_{name}": f"SELECT a.id, b.id AS other FROM t AS a JOIN t AS b ON a.{name} = b.{name}",
            f"extremes_{name}": f"SELECT grp, min({name}) AS least, max({name}) AS most FROM t GROUP BY grp",
            f"found_{name}": f"SELECT id FROM t AS a WHERE EXISTS (SELECT FROM t AS b WHERE b.{name} = a.{name} "
            "AND b.id > a.id)",
        }
    return found


@pytest.mark.parametrize("when", ["before", "after"])
def test_no_cast_between_a_user_defined_type_and_text_is_called(
    ms: Millstream, writer: psycopg.Connection, when: str
) -> None:
    if when == "before":
        define_casts(writer)
    for name, query in queries().items():
        # With the casts there from the start, one type in every position is enough.
        if when == "after" or not name.endswith((COLUMNS["temper"], COLUMNS["positive"])):
            ms.create_stream_table(name, query, schedule="1h")
    if when == "after":
        define_casts(writer)
        # A new cast may be what a query means: where a type of it has one, it is planned and
        # computed anew, once.
        assert {report.action for report in ms.refresh_all()} <= {"REINITIALIZE", "NO_DATA"}
    rounds(ms, writer)


def test_the_oracle_catches_a_product_that_encodes_wrongly(
    ms: Millstream, writer: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verify and the suite's oracle once cast to text as the product did, and called what a cast
    had changed right.
    """
    query = "SELECT id, c0 FROM t"
    ms.app.witness = None

    def corrupted(expression: str, type_: object) -> str:
        return f"(CASE WHEN {expression} IS NULL THEN NULL ELSE 'ok' END)"

    monkeypatch.setattr(text_io, "output_sql", corrupted)
    ms.create_stream_table("st", query)
    with pytest.raises(AssertionError, match="differs from its query"):
        oracle.check(ms.app.conn, query, "st")


# -- blanks at the end of bpchar -------------------------------------------------------------

# Over t (id, k, c bpchar, d dom, c5 char(5), c3 char(3)) and u (id, c bpchar, c5, c3). Equal values
# of one table have the same blanks, and other ones than their equals in the other table: each
# result is determined to the last blank.
BLANKS = {
    "plain": "SELECT id, c, d, c5 FROM t",
    "bag": "SELECT c, d FROM t",
    "alternatives": "SELECT id, coalesce(c5, c3) AS x, CASE WHEN k = 0 THEN c3 ELSE c5 END AS y FROM t",
    "joined": "SELECT t.id, u.id AS other, t.c, u.c AS d FROM t JOIN u ON t.c = u.c",
    "joined_to_declared": "SELECT t.id, u.id AS other, t.c, u.c5 FROM t JOIN u ON t.c = u.c5",
    "full": "SELECT t.id, u.id AS other, c FROM t FULL JOIN u USING (c)",
    "across": "SELECT t.id, u.id AS other, coalesce(u.c, t.c5) AS x FROM t JOIN u ON t.k = u.id % 2",
    "exists": "SELECT id, c FROM t WHERE EXISTS (SELECT FROM u WHERE u.c = t.c)",
    "grouped": "SELECT c, count(*) AS n FROM t GROUP BY c",
    "grouped_by_both": "SELECT k, coalesce(c5, c3) AS x, sum(id) AS n FROM t GROUP BY k, coalesce(c5, c3)",
    "grouped_across": "SELECT coalesce(u.c, t.c5) AS x, count(*) AS n FROM t LEFT JOIN u ON t.id = u.id "
    "WHERE t.c5 <> 'a' OR u.c = 'zz' GROUP BY 1",
    "nested": "SELECT g.c, t.id FROM (SELECT c, count(*) AS n FROM u GROUP BY c) AS g JOIN t ON t.c = g.c",
    "distinct": "SELECT DISTINCT c FROM t",
    "extremes": "SELECT k, min(c) AS least, max(c) AS most, max(coalesce(c5, c3)) AS x FROM t GROUP BY k",
    "extremes_across": "SELECT t.k, max(coalesce(u.c, t.c)) AS x FROM t LEFT JOIN u ON t.id = u.id + 100 GROUP BY t.k",
    "listed": "SELECT k, array_agg(c ORDER BY id) AS cs FROM t GROUP BY k",
    "windowed": "SELECT id, c, row_number() OVER (PARTITION BY c ORDER BY id) AS n, lag(c) OVER (ORDER BY id) AS b "
    "FROM t",
    "first": "SELECT id, c FROM t ORDER BY id DESC LIMIT 4",
    "united_lengths": "SELECT id, c3 FROM t UNION ALL SELECT id, c5 FROM u",
    "united_groups": "SELECT x, count(*) AS n FROM (SELECT c3 AS x FROM t WHERE c3 <> 'a' UNION ALL "
    "SELECT c FROM t WHERE c = 'a') AS q GROUP BY x",
    "except": "SELECT c FROM t EXCEPT SELECT c5 FROM u WHERE id < 2",
    "recursive": "WITH RECURSIVE r (id, c) AS (SELECT id, c FROM t WHERE id < 3 UNION ALL "
    "SELECT t.id, t.c FROM r JOIN t ON t.id = r.id + 2) SELECT id, c FROM r",
    "expanded": "SELECT t.id, x FROM t, unnest(ARRAY[t.c, t.d]) AS x",
}  # fmt: skip
_IN_T = ("''", "'a '", "'b    '", "'ab'", "' a  '", "NULL", "'long          '")
_IN_U = ("''", "'a   '", "'b'", "'ab      '", "NULL", "'zz  '")


def fill_blanks(conn: psycopg.Connection) -> None:
    conn.execute("CREATE DOMAIN dom AS bpchar CHECK (VALUE <> 'x')")
    conn.execute(
        "CREATE TABLE t (id int PRIMARY KEY, k int, c bpchar, d dom, c5 char(5), c3 char(3))"
    )
    conn.execute("CREATE TABLE u (id int PRIMARY KEY, c bpchar, c5 char(5), c3 char(3))")
    for id_ in range(10):
        insert_blanks(conn, id_)


def insert_blanks(conn: psycopg.Connection, id_: int) -> None:
    one, other = _IN_T[id_ % len(_IN_T)], _IN_U[id_ % len(_IN_U)]
    short = "NULL" if id_ % 3 else "'a'"
    conn.execute(f"INSERT INTO t VALUES ({id_}, {id_ % 2}, {one}, {one}, {short}, 'b')".encode())
    conn.execute(f"INSERT INTO u VALUES ({id_}, {other}, {short}, 'ab')".encode())


def test_bpchar_without_a_length_keeps_its_blanks_everywhere(ms: Millstream, database: str) -> None:
    """Its cast to text strips them: stored rows lost their blanks, and verify, which cast both
    sides, said ok.
    """
    with psycopg.connect(database, autocommit=True) as conn:
        fill_blanks(conn)
        ms.app.witness = witness
        for name, query in BLANKS.items():
            ms.create_stream_table(f"s_{name}", query, schedule="1h", refresh_mode="DIFFERENTIAL")
        ms.create_stream_table("s_over", "SELECT c, n + 1 AS n FROM s_grouped", schedule="1h")
        for change in (
            "UPDATE t SET c = 'ab ' WHERE c = 'ab'; UPDATE u SET c = 'zz' WHERE c = 'zz'",
            "DELETE FROM t WHERE id % 4 = 0; DELETE FROM u WHERE id % 3 = 0; UPDATE t SET k = 1 - k WHERE id < 5",
        ):
            for id_ in range(2):
                last = conn.execute(
                    "SELECT greatest((SELECT max(id) FROM t), (SELECT max(id) FROM u))"
                ).fetchone()
                assert last is not None
                insert_blanks(conn, last[0] + 1 + id_)
            conn.execute(change)
            reports = ms.refresh_all()
            assert {report.action for report in reports} <= {"DIFFERENTIAL", "NO_DATA"}
        for name in (*(f"s_{name}" for name in BLANKS), "s_over"):
            assert ms.verify(name).ok, name
        for name in ("s_bag", "s_across", "s_grouped", "s_extremes"):
            full = ms.refresh(name, full=True)
            assert (full.action, full.rows_changed) == ("FULL", 0), name


def test_a_group_shows_one_of_its_equal_values(ms: Millstream, database: str) -> None:
    """Equality ignores blanks at the end.

    What was shown once must go when the row that has it goes.
    """
    queries = {
        "grouped": "SELECT c, count(*) AS n FROM t GROUP BY c",
        "distinct": "SELECT DISTINCT c FROM t",
        "extreme": "SELECT max(c) AS c FROM t GROUP BY k",
        "joined": "SELECT g.c FROM (SELECT c FROM t GROUP BY c) AS g JOIN u ON u.c = g.c",
        "first": "SELECT DISTINCT ON (k) c FROM t ORDER BY k, c",
    }
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "CREATE TABLE t (id int, k int, c bpchar); CREATE TABLE u (c char(9)); INSERT INTO u VALUES ('a')"
        )
        conn.execute("INSERT INTO t VALUES (1, 1, 'a'), (2, 1, 'a   ')")
        for name, query in queries.items():
            ms.create_stream_table(name, query, schedule="1h", refresh_mode="DIFFERENTIAL")
        for change in (
            "INSERT INTO t VALUES (3, 1, 'a       ')",
            "DELETE FROM t WHERE id = 3",
            "UPDATE t SET c = 'a ' WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
            "UPDATE t SET c = 'a  '",
            "UPDATE t SET c = 'a'",
        ):
            conn.execute(change)
            assert {report.action for report in ms.refresh_all()} <= {"DIFFERENTIAL", "NO_DATA"}
            rows = {text for (text,) in conn.execute("SELECT textin(bpcharout(c)) FROM t")}
            for name in queries:
                (shown,) = conn.execute(
                    f'SELECT textin(bpcharout(c)) FROM public."{name}"'.encode()
                ).fetchall()
                assert shown[0] in rows, (name, change)
                assert ms.verify(name).ok


def test_verify_compares_the_blanks_of_plain_columns(ms: Millstream, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "CREATE TABLE t (id int PRIMARY KEY, c bpchar); INSERT INTO t VALUES (1, 'a  ')"
        )
        ms.create_stream_table("plain", "SELECT id, c FROM t")
        conn.execute("ALTER TABLE plain DISABLE TRIGGER millstream_guard; UPDATE plain SET c = 'a'")
        conn.execute("ALTER TABLE plain ENABLE ALWAYS TRIGGER millstream_guard")
        assert (ms.verify("plain").missing, ms.verify("plain").extra) == (1, 1)


def test_a_recursive_union_of_bpchar_is_refused(ms: Millstream, database: str) -> None:
    """Which of its equal values a recursion shows depends on the order of its steps."""
    query = (
        "WITH RECURSIVE r (id, c) AS (SELECT id, c FROM t WHERE id = 1 UNION "
        "SELECT t.id, t.c FROM r JOIN t ON t.id = r.id + 1) SELECT id, c FROM r"
    )
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "CREATE TABLE t (id int PRIMARY KEY, c bpchar); INSERT INTO t VALUES (1, 'a '), (2, 'b')"
        )
    with pytest.raises(Unsupported, match="recursive UNION of bpchar"):
        ms.create_stream_table("reached", query)
    ms.create_stream_table("all_rows", query.replace("UNION", "UNION ALL"))
    cast = query.replace("id, c FROM t WHERE", "id, c::text FROM t WHERE").replace(
        "t.c", "t.c::text"
    )
    ms.create_stream_table("as_text", cast)
    assert ms.verify("all_rows").ok
    assert ms.verify("as_text").ok
