"""A small shop to plan queries over. Planning asks PostgreSQL what a query means; it needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
import pytest

from millstream.bundled.server import Server
from millstream.catalog.installation import install
from millstream.postgres.connection import Connection, connect

TABLES = """
    CREATE TABLE regions (id int PRIMARY KEY, name text NOT NULL, code text COLLATE "C");
    CREATE TABLE customers (id int PRIMARY KEY, name text, region int, since date, score double precision, extra jsonb);
    CREATE TABLE orders (
        id bigint PRIMARY KEY, customer int, amount numeric(12,2), rate numeric, quantity smallint,
        weight double precision, note text, placed timestamptz, paid boolean
    );
    CREATE TABLE visits (customer int, page text, seconds int);
    CREATE VIEW paid_orders AS SELECT id, customer, amount FROM orders WHERE paid;
"""

ONE_OF_EACH = """
    CREATE TABLE t (
        id int PRIMARY KEY, x int, s smallint, n numeric, m numeric(9,2), f double precision, t text, c char(3),
        ok boolean, d date, ts timestamp, tz timestamptz, iv interval, j jsonb, arr int[], u uuid, b bytea,
        r int4range, net inet
    );
    CREATE TABLE u (id int PRIMARY KEY, x int, t text)
"""


@contextmanager
def planning_database(server: Server, name: str, tables: LiteralString) -> Iterator[Connection]:
    """Open a connection to a new database with the catalog and these tables; drop it at the end."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            with connect(server.dsn_for("tester", name)) as conn:
                install.install(conn)
                conn.execute(tables)
                yield conn
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(scope="module")
def shop(server: Server) -> Iterator[Connection]:
    """A connection to a database with the shop's tables."""
    with planning_database(server, "plan_shop", TABLES) as conn:
        yield conn


@pytest.fixture(scope="module")
def planner(server: Server) -> Iterator[Connection]:
    """A connection to a database with a table that has a column of many types."""
    with planning_database(server, "plan_types", ONE_OF_EACH) as conn:
        yield conn
