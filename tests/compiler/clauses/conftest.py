"""One table with a column of many kinds, for queries that are planned and not run."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream.catalog.installation import install
from millstream.embedded.server import Server
from millstream.postgres.connection import Connection, connect

TABLES = """
    CREATE TABLE t (
        id int PRIMARY KEY, x int, s smallint, n numeric, m numeric(9,2), f double precision, t text, c char(3),
        ok boolean, d date, ts timestamp, tz timestamptz, iv interval, j jsonb, arr int[], u uuid, b bytea,
        r int4range, net inet
    );
    CREATE TABLE u (id int PRIMARY KEY, x int, t text)
"""


@pytest.fixture(scope="module")
def planner(server: Server) -> Iterator[Connection]:
    """A connection to a database with these tables and the catalog."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE sql_tests")
        try:
            with connect(server.dsn_for("tester", "sql_tests")) as conn:
                install.install(conn)
                conn.execute(TABLES)
                yield conn
        finally:
            admin.execute("DROP DATABASE sql_tests WITH (FORCE)")
