"""A value travels by its type's own output and input functions, whatever casts a user has defined.

`x::text` and `text::type` call a user-defined cast where there is one: what it returned was stored, and its code ran
with the rights of the role that runs Millstream. Here every user-defined type has casts to and from text that raise.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream.algebra import text_io
from millstream.client import Millstream
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
        conn.execute(DEFINITIONS.replace("float8)", "float8, multirange_type_name = multirange_of_span)").encode())
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
            for name, source, target in ((f"out_{number}_{text}", type_, text), (f"in_{number}_{text}", text, type_)):
                made = f"CREATE FUNCTION {name}({source}) RETURNS {target} LANGUAGE plpgsql IMMUTABLE {body}"
                conn.execute(f"{made}; CREATE CAST ({source} AS {target}) WITH FUNCTION {name}({source})".encode())


def witness(now: Cut, job: Job, report: RefreshReport) -> None:
    oracle.check(now.conn, job.table.query, job.names.target)


def rounds(ms: Millstream, writer: psycopg.Connection) -> None:
    """Change the table in several ways; each refresh is differential, and compared by the oracle and by verify."""
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
        assert ms.verify(name).ok
        assert ms.table(name).count() == ms.verify(name).rows
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
    """Each type as a value, of a table with and without a key, through a join; and in every position it can have."""
    every = ", ".join(COLUMNS.values())
    joined = ", ".join(f"b.{name}" for name in COLUMNS.values())
    single = [name for type_, name in COLUMNS.items() if "[" not in type_]
    gathered = ", ".join(f"array_agg({name} ORDER BY id) AS {name}" for name in single)
    found = {
        "carried": f"SELECT id, {every} FROM t",
        "bag": f"SELECT {every} FROM t WHERE grp = 0",
        "joined": f"SELECT a.id, {joined} FROM t AS a JOIN t AS b ON b.id = a.id + 1",
        "gathered": f"SELECT grp, {gathered} FROM t GROUP BY grp",
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
        ms.create_stream_table(name, query, schedule="1h")
    if when == "after":
        define_casts(writer)
        # A new cast may be what a query means: where a type of it has one, it is planned and computed anew, once.
        assert {report.action for report in ms.refresh_all()} <= {"REINITIALIZE", "NO_DATA"}
    rounds(ms, writer)


def test_the_oracle_catches_a_product_that_encodes_wrongly(
    ms: Millstream, writer: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verify and the suite's oracle once cast to text as the product did, and called what a cast had changed right."""
    query = "SELECT id, c0 FROM t"
    ms.app.witness = None

    def corrupted(expression: str, type_: object) -> str:
        return f"(CASE WHEN {expression} IS NULL THEN NULL ELSE 'ok' END)"

    monkeypatch.setattr(text_io, "output_sql", corrupted)
    ms.create_stream_table("st", query)
    with pytest.raises(AssertionError, match="differs from its query"):
        oracle.check(ms.app.conn, query, "st")
