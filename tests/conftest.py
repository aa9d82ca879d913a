"""What every test may ask for: a real PostgreSQL, a fresh database in it, a connection to that.

MILLSTREAM_TEST_BINDIR names another PostgreSQL's bin directory; without it the embedded PostgreSQL
18 runs. The tests connect as a role that is not named like one of our schemas: a role's own name
comes first in its search_path, so the tables of a role "millstream" would be made among ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.bundled.server import Server, embedded
from millstream.postgres.connection import Connection, connect

# Nothing here survives the run, so nothing need reach the disk.
SETTINGS = {"fsync": "off", "full_page_writes": "off"}
ROLE = "tester"
# For processes that tests start: compiled once and not twice, Java takes half as long for what runs
# a few times.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
os.environ.setdefault("MILLSTREAM_SPARK_CONF", json.dumps(QUICK))

# What Java keeps of its classes goes with the environment that the suite runs in.
os.environ.setdefault("XDG_CACHE_HOME", str(Path(sys.prefix) / "cache"))

_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for the whole run."""
    with embedded(
        bindir=os.environ.get("MILLSTREAM_TEST_BINDIR") or None, settings=SETTINGS
    ) as running:
        with psycopg.connect(running.dsn, autocommit=True) as admin:
            admin.execute(f"CREATE ROLE {ROLE} SUPERUSER LOGIN")
        yield running


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """A fresh database for one test: its dsn."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        try:
            yield server.dsn_for(ROLE, name)
        finally:
            _roll_back_prepared(admin, name)
            _end_senders(admin, name)
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _end_senders(admin: psycopg.Connection, database: str) -> None:
    # A slot that is read from keeps its database from being dropped; the server sees a moment later
    # that we are gone.
    query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s AND active"
    deadline = time.monotonic() + 10
    while admin.execute(query, (database,)).fetchall() and time.monotonic() < deadline:
        time.sleep(0.02)


def _roll_back_prepared(admin: psycopg.Connection, database: str) -> None:
    # A prepared transaction keeps its database from being dropped, and can be ended only from
    # inside it.
    query = "SELECT gid FROM pg_prepared_xacts WHERE database = %s"
    gids = [gid for (gid,) in admin.execute(query, (database,)).fetchall()]
    if gids:
        with psycopg.connect(admin.info.dsn, dbname=database, autocommit=True) as inside:
            for gid in gids:
                inside.execute(f"ROLLBACK PREPARED '{gid}'")


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    """A connection to the fresh database, as Millstream opens them."""
    with connect(database) as connection:
        yield connection


@pytest.fixture
def another(database: str) -> Iterator[Callable[[], Connection]]:
    """Opens more connections to the fresh database; all are closed at the end."""
    opened: list[Connection] = []

    def open_one() -> Connection:
        opened.append(connect(database))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    """A connection of an application, which changes tables; a test file may give it tables of its
    own.
    """
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@cache
def started() -> SparkSession:
    """This process's Spark, or the whole run's: compiled as well as can be, which after minutes is
    a quarter faster.
    """
    from millstream.spark import session
    from millstream.testing.spark import attached

    address = os.environ.get("MILLSTREAM_TEST_SPARK")
    return attached(address) if address else session.start("local[2]", {})


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Before a test has the product start one, with the settings of processes.
    if item.get_closest_marker("spark"):
        started()


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """One warm Spark session for the whole run: starting one takes some ten seconds."""
    return started()


@pytest.fixture
def ms(database: str, spark: SparkSession) -> Iterator[Millstream]:
    """Millstream in the fresh database, on the warm session."""
    with millstream.connect(database, spark=spark) as connected:
        yield connected


@pytest.fixture
def unfilled(database: str, writer: psycopg.Connection) -> Iterator[Millstream]:
    """Millstream without Spark, and the stream table `totals` over `orders`, which has not been
    filled yet.
    """
    writer.execute("CREATE TABLE orders (id int PRIMARY KEY, region text, amount int)")
    with millstream.connect(database) as ms:
        query = "SELECT region, sum(amount) AS total FROM orders GROUP BY region"
        ms.create_stream_table("totals", query, schedule="5m", initialize=False)
        yield ms
