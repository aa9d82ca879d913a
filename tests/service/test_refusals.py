"""Bad input gets an answer: a message, a code, a place in the query, a way round, and nothing
half-done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

import millstream
from millstream.bundled.server import free_port
from millstream.catalog import sources, stream_tables
from millstream.errors import (
    BadQuery,
    BadSetting,
    BadSource,
    MillstreamError,
    NameTaken,
    NoRights,
    NoSuchStreamTable,
    Unsupported,
    Volatile,
)

SCHEMA = """
    CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(12,2), note text, at timestamptz, doc json);
    CREATE TABLE customers (id int PRIMARY KEY, region text, limits jsonb, since date);
    CREATE TABLE words (w text COLLATE "C", v text);
    CREATE TABLE floats (id int PRIMARY KEY, f float8);
    CREATE VIEW noisy AS SELECT id, random() AS r FROM orders;
    CREATE VIEW totals_view AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;
    CREATE MATERIALIZED VIEW frozen AS SELECT id FROM orders;
    CREATE UNLOGGED TABLE fleeting (id int);
    CREATE FUNCTION shaky(int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT $1';
    CREATE SEQUENCE numbers;
"""


@dataclass(frozen=True)
class Bad:
    """A query, the error it gets, a word of its message, and the word in the query that it points
    at.
    """

    query: str
    error: type[MillstreamError]
    says: str
    at: str | None = None


BAD = [
    Bad("SELEC id FROM orders", BadQuery, "syntax error", "SELEC"),
    Bad("SELECT id FROM", BadQuery, "syntax error"),
    Bad("SELECT id FROM nowhere", BadQuery, 'relation "nowhere" does not exist', "nowhere"),
    Bad("SELECT colour FROM orders", BadQuery, 'column "colour" does not exist', "colour"),
    Bad("SELECT id FROM orders; DROP TABLE orders", BadQuery, "one statement"),
    Bad("SELECT id FROM orders; COMMIT; DROP TABLE words", BadQuery, "one statement"),
    Bad("SELECT id, id FROM orders", BadQuery, 'column "id" specified more than once'),
    Bad("DELETE FROM orders RETURNING id", BadQuery, "syntax error", "DELETE"),
    Bad("SELECT sum(note) FROM orders", BadQuery, "function sum(text) does not exist", "sum"),
    Bad("", BadQuery, "syntax error"),
    Bad("SELECT id, random() AS r FROM orders", Volatile, "random", "random"),
    Bad("SELECT id FROM orders WHERE at < clock_timestamp()", Volatile, "clock_timestamp", "clock_timestamp"),
    Bad("SELECT id FROM orders WHERE at < statement_timestamp()", Volatile, "statement_timestamp"),
    Bad("SELECT id FROM orders ORDER BY id LIMIT extract(hour FROM now())", Unsupported, "depends on the time"),
    Bad("SELECT id, pg_typeof(at) AS t FROM orders", Volatile, "pg_typeof", "pg_typeof"),
    Bad("SELECT id, shaky(id) AS s FROM orders", Volatile, "shaky", "shaky"),
    Bad("SELECT id, r FROM noisy", Volatile, "random"),
    Bad("SELECT nextval('numbers') AS n, id FROM orders", Volatile, "nextval", "nextval"),
    Bad("SELECT ctid::text AS place, id FROM orders", MillstreamError, ""),
    Bad("SELECT xmin, id FROM orders", Unsupported, 'system column "xmin"', "xmin"),
    Bad("SELECT tableoid, id FROM orders", Unsupported, 'system column "tableoid"', "tableoid"),
    Bad("SELECT count(o.*) AS n FROM (SELECT id FROM orders) AS o", Unsupported, "whole row"),
    Bad("SELECT id FROM orders FOR UPDATE", Unsupported, "FOR UPDATE", "FOR"),
    Bad("SELECT count(*) AS n FROM orders o GROUP BY ROLLUP ((SELECT max(c.id) FROM customers c WHERE c.id < o.id))",
        Unsupported, "GROUP BY a subquery"),
    Bad("SELECT o.id FROM orders o FULL JOIN customers c ON (SELECT count(*) FROM words) > o.id + c.id AND o.id = c.id",
        Unsupported, "the ON of a FULL JOIN", "(SELECT count"),
    Bad("SELECT o.id FROM orders o ORDER BY o.id LIMIT (SELECT count(*) FROM words)", Unsupported, "LIMIT"),
    Bad("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
        Unsupported, "without a table"),
    Bad("SELECT g FROM generate_series(1, 3) AS g", Unsupported, "without a table"),
    Bad("SELECT column1 FROM (VALUES (1)) AS v", Unsupported, "without a table"),
    Bad("SELECT 1 AS one", Unsupported, "without a table"),
    Bad("SELECT id FROM orders WHERE id IN (VALUES ((SELECT max(id) FROM orders)))",
        Unsupported, "VALUES", "SELECT max"),
    Bad("SELECT id FROM orders TABLESAMPLE BERNOULLI (10)", Unsupported, "TABLESAMPLE", "TABLESAMPLE"),
    Bad("SELECT id, current_user AS who FROM orders", MillstreamError, "current_user", "current_user"),
    Bad("SELECT c.id FROM customers c CROSS JOIN orders o JOIN customers d ON o.note || c.region < d.region",
        Unsupported, "over several tables"),
    Bad("SELECT ARRAY[id::numeric] AS x, count(*) FROM customers GROUP BY 1", Unsupported, "grouping by"),
    Bad("SELECT id FROM frozen", BadSource, "frozen"),
    Bad("SELECT id FROM fleeting", BadSource, "fleeting"),
    Bad("SELECT relname FROM pg_class", BadSource, "pg_class"),
    Bad("SELECT name FROM millstream.stream_tables", BadSource, "stream_tables"),
]  # fmt: skip


@pytest.fixture
def ms(database: str) -> Iterator[millstream.Millstream]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(SCHEMA)
    with millstream.connect(database) as client:
        yield client


def left_behind(ms: millstream.Millstream) -> list[str]:
    """What a refused create must not leave: catalog rows, capture, tables."""
    conn = ms.app.conn
    query = (
        "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname IN ('millstream_changes', 'millstream_state') OR c.relname = 'st'"
    )
    tables = [name for (name,) in conn.execute(query)]
    return [*tables, *map(str, stream_tables.every(conn)), *map(str, sources.every(conn))]


def test_a_refused_query_says_what_where_and_what_next_and_leaves_nothing(
    ms: millstream.Millstream,
) -> None:
    for bad in BAD:
        with pytest.raises(bad.error) as caught:
            ms.create_stream_table("st", bad.query)
        error = caught.value
        assert bad.says in error.message, (bad.query, error.message)
        assert error.code.startswith("MS1"), bad.query
        assert error.hint, bad.query
        if bad.at is not None:
            assert error.position == bad.query.index(bad.at) + 1, (bad.query, error.position)
            assert "-->" in error.detail, (bad.query, error.detail)
        assert left_behind(ms) == [], bad.query


def test_a_temporary_table_is_refused_by_name(ms: millstream.Millstream) -> None:
    ms.app.conn.execute("CREATE TEMPORARY TABLE scratch (id int)")
    with pytest.raises(BadSource, match="scratch") as caught:
        ms.create_stream_table("st", "SELECT id FROM scratch")
    assert "temporary" in caught.value.detail


def test_a_name_that_is_taken_is_refused_with_what_takes_it(ms: millstream.Millstream) -> None:
    for name, kind in (
        ("orders", "table"),
        ("noisy", "view"),
        ("frozen", "materialized view"),
        ("numbers", "sequence"),
    ):
        with pytest.raises(NameTaken) as caught:
            ms.create_stream_table(name, "SELECT id FROM customers")
        assert caught.value.code == "MS201"
        assert kind in caught.value.detail


@pytest.mark.parametrize("name", ["", "a.b.c", "x" * 64, "nowhere.st", "a b"])
def test_a_name_that_is_no_table_name_is_refused(ms: millstream.Millstream, name: str) -> None:
    with pytest.raises(BadSetting):
        ms.create_stream_table(name, "SELECT id FROM customers")


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("schedule", "often"),
        ("schedule", "1ms"),
        ("schedule", "61 * * * *"),
        ("refresh_mode", "FAST"),
        ("cdc_mode", "log"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(
    ms: millstream.Millstream, parameter: str, value: str
) -> None:
    with pytest.raises(BadSetting) as caught:
        ms.create_stream_table("st", "SELECT id FROM customers", **{parameter: value})  # type: ignore[arg-type]  # on purpose
    assert caught.value.code == "MS005"
    assert value in caught.value.message


def test_an_unknown_stream_table_is_said_to_be_unknown_by_every_verb(
    ms: millstream.Millstream,
) -> None:
    for verb in (ms.refresh, ms.verify, ms.explain, ms.history, ms.drop_stream_table):
        with pytest.raises(NoSuchStreamTable, match="nothing"):
            verb("nothing")


def test_another_role_gets_the_owner_of_the_catalog_in_the_error(
    ms: millstream.Millstream, database: str
) -> None:
    conn = ms.app.conn
    conn.execute("CREATE ROLE stranger LOGIN")
    try:
        with pytest.raises(NoRights) as caught:
            millstream.connect(database.replace("tester@", "stranger@"))
        assert caught.value.code == "MS004"
        assert "stranger" in caught.value.message
        assert caught.value.hint == 'Connect as role "tester".'
    finally:
        conn.execute("DROP ROLE stranger")


def run(*arguments: str, dsn: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a user runs it."""
    command = [sys.executable, "-m", "millstream", *arguments]
    return subprocess.run(
        command,
        env={**os.environ, "MILLSTREAM_DSN": dsn, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_line_ends_with_a_code_and_no_traceback(
    ms: millstream.Millstream, database: str
) -> None:
    refused = run("create", "st", "SELECT id FROM orders FOR UPDATE", "--json", dsn=database)
    assert refused.returncode == 3
    told = json.loads(refused.stderr)["error"]
    assert told["code"] == "MS102"
    assert told["facts"]["position"] == 23
    unknown = run("refresh", "nothing", dsn=database)
    assert unknown.returncode == 5
    assert "MS202" in unknown.stderr
    down = run("list", dsn=f"postgresql://nobody@127.0.0.1:{free_port()}/nothing")
    assert down.returncode == 4
    no_java = run("create", "st", "SELECT id FROM orders", dsn=database, JAVA_HOME="/nowhere")
    assert no_java.returncode == 4
    assert "MS003" in no_java.stderr
    for done in (refused, unknown, down, no_java):
        assert "Traceback" not in done.stderr
    assert left_behind(ms) == []
