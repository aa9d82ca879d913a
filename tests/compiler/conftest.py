"""A small shop to plan queries over.

Planning asks PostgreSQL what a query means; it needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import LiteralString

import psycopg
import pytest

from millstream.algebra.block import Block
from millstream.algebra.dialect import parsed
from millstream.algebra.relation import Relation
from millstream.algebra.table import Table
from millstream.algebra.types import Column, PgType
from millstream.bundled.server import Server
from millstream.catalog.installation import install
from millstream.compiler.blocks.split import split_into_blocks
from millstream.compiler.clauses.build import build_relation
from millstream.postgres.connection import Connection, connect
from millstream.testing.planning_server import PlanningServerDouble, pg_type, table

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


INTEGER_TABLES: dict[str, Table | str] = {
    "t": table("t", "id int4, a int4, b int4", key="id"),
    "u": table("u", "a int4, b int4"),
    "w": table("w", "a int4, b int4"),
    "big": " SELECT t.id,\n    t.a\n   FROM public.t\n  WHERE (t.a > 10);",
}


class Integers:
    """A `CatalogLookup` in which every column is an integer; `asked` holds the queries whose types
    were asked.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def table(self, schema: str, name: str) -> Table | str:
        return INTEGER_TABLES[name]

    def types(self, select: str, node: object = None) -> tuple[PgType, ...]:
        self.asked.append(select)
        return tuple(pg_type("int4") for _ in parsed(select).expressions)

    def aggregates(self) -> frozenset[str]:
        return frozenset()

    def sets(self) -> Mapping[str, bool]:
        return {"generate_series": False, "json_each": True}


@pytest.fixture
def build() -> Callable[[str], Relation]:
    """Return a function that builds the relation of a canonical query text, without a server."""
    return lambda text: build_relation(parsed(text), Integers())


def planned(
    text: str, columns: str, types: Mapping[str, str] = MappingProxyType({})
) -> tuple[Block, ...]:
    """Return the blocks of a canonical query over tables of integers, without a server; all its
    columns are integers.

    `types` are types of expressions that the double of the server cannot tell.
    """
    known = {expression: pg_type(type_) for expression, type_ in types.items()}
    outputs = [Column(name, pg_type("int4")) for name in columns.split()]
    return split_into_blocks(
        build_relation(parsed(text), Integers()), outputs, PlanningServerDouble(known)
    )
