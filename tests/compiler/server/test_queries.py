"""What the server says of queries: what it refuses, we refuse in our own words."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

import millstream
from millstream.catalog.installation import install
from millstream.client import Millstream
from millstream.compiler.server.plan_query import plan_query
from millstream.errors import BadQuery, Unsupported
from millstream.postgres.connection import Connection

ROWS = {
    "null-extended": "SELECT k.id, a.r IS NULL AS no FROM k LEFT JOIN (SELECT n, {row} AS r FROM t) AS a ON a.n = k.id",
    "null-extended, compared": "SELECT k.id FROM k LEFT JOIN (SELECT n, {row} AS r FROM t) AS a ON a.n = k.id "
    "WHERE a.r = {other} OR a.r IS NULL",
    "full join": "SELECT k.id, a.r IS NULL AS no FROM k FULL JOIN (SELECT n, {row} AS r FROM t) AS a ON a.n = k.id",
    "UNION ALL": "SELECT q.n, q.r = {other} AS same FROM (SELECT n, {row} AS r FROM t "
    "UNION ALL SELECT id, {other} FROM k) AS q",
}


@pytest.fixture
def planner(conn: Connection) -> Connection:
    install.install(conn)
    conn.execute("CREATE TYPE pair AS (x int, y text)")
    conn.execute(
        "CREATE TABLE k (id int PRIMARY KEY); CREATE TABLE t (id int PRIMARY KEY, n int, x int, y text)"
    )
    return conn


def test_an_anonymous_row_as_a_column_is_refused_with_a_workaround_that_works(
    planner: Connection,
) -> None:
    """It was refused in the server's words, by a name of ours: column "x0" has pseudo-type record."""
    for query in ROWS.values():
        with pytest.raises(Unsupported, match="anonymous row") as refused:
            plan_query(planner, query.format(row="ROW(x, y)", other="ROW(1, 'a'::text)"))
        assert "composite type" in refused.value.hint
        assert "ROW" in refused.value.message
        assert plan_query(
            planner, query.format(row="ROW(x, y)::pair", other="ROW(1, 'a')::pair")
        ).blocks


def test_an_anonymous_row_that_is_compared_in_place_is_no_column(planner: Connection) -> None:
    assert plan_query(
        planner, "SELECT q.n FROM (SELECT n, ROW(x, y) AS r FROM t) AS q WHERE q.r = ROW(1, 'a')"
    ).blocks


@pytest.mark.spark
def test_names_of_the_user_are_read_along_the_users_path(
    database: str, spark: SparkSession, writer: psycopg.Connection
) -> None:
    writer.execute(
        "CREATE SCHEMA millstream_app; CREATE TABLE millstream_app.t (id int PRIMARY KEY)"
    )
    writer.execute("CREATE TABLE public.t (id text); INSERT INTO millstream_app.t VALUES (1)")
    with millstream.connect(
        make_conninfo(database, options="-csearch_path=millstream_app"), spark=spark
    ) as ms:
        ms.create_stream_table("st", "SELECT id FROM t")
        assert writer.execute("SELECT id FROM millstream_app.st").fetchall() == [(1,)]
        assert ms.refresh("st").name == "st"
        assert ms.app.conn.execute("SHOW search_path").fetchone() == ("pg_catalog, pg_temp",)


@pytest.mark.spark
def test_a_path_of_our_own_schemas_does_not_show_them_to_the_query(
    database: str, spark: SparkSession, writer: psycopg.Connection
) -> None:
    """With our schema on the path, `sources` was a table of the catalog."""
    writer.execute(
        "CREATE TABLE public.sources (id int PRIMARY KEY); INSERT INTO public.sources VALUES (7)"
    )
    with millstream.connect(
        make_conninfo(database, options="-csearch_path=millstream,public"), spark=spark
    ) as ms:
        ms.create_stream_table("st", "SELECT id FROM sources")
        assert writer.execute("SELECT id FROM public.st").fetchall() == [(7,)]


@pytest.mark.spark
def test_names_that_are_the_same_after_63_bytes_are_postgresqls_own_error(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with pytest.raises(BadQuery, match="specified more than once"):
        ms.create_stream_table("st", f'SELECT id AS "{"k" * 63}a", v AS "{"k" * 63}b" FROM t')
