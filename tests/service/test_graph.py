"""Stream tables over stream tables: a whole graph moves to one moment, in one cut, and each is exact."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest

import millstream
from millstream import Millstream
from millstream.errors import StillUsed
from millstream.refresh.report import RefreshReport

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2));
    CREATE TABLE customers (id int PRIMARY KEY, region text);
    INSERT INTO customers SELECT n, 'r' || n % 3 FROM generate_series(1, 9) AS n;
    INSERT INTO orders SELECT n, n % 9 + 1, n FROM generate_series(1, 60) AS n;
"""
# A diamond: both halves read `totals`, and the last reads both halves and a plain table.
GRAPH = {
    "totals": "SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer",
    "large": "SELECT customer, total FROM totals WHERE total > 150",
    "by_region": "SELECT c.region, sum(t.total) AS total FROM totals AS t JOIN customers AS c ON c.id = t.customer "
    "GROUP BY c.region",
    "joined": "SELECT l.customer, c.region, l.total, b.total AS of_region FROM large AS l "
    "JOIN customers AS c ON c.id = l.customer JOIN by_region AS b ON b.region = c.region",
}


@pytest.fixture
def ms(database: str) -> Iterator[Millstream]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    with millstream.connect(database) as client:
        for name, query in GRAPH.items():
            client.create_stream_table(name, query, schedule="1h", refresh_mode="DIFFERENTIAL")
        yield client


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


def change(writer: psycopg.Connection, dice: random.Random) -> None:
    with writer.transaction():
        for _ in range(dice.randint(1, 4)):
            number = dice.randint(1, 90)
            amount = dice.choice([0, 5, 80, 200])
            writer.execute("DELETE FROM orders WHERE id = %s", (number,))
            writer.execute("INSERT INTO orders VALUES (%s, %s, %s)", (number, number % 9 + 1, amount))
        writer.execute("UPDATE customers SET region = %s WHERE id = %s", (f"r{dice.randint(0, 2)}", dice.randint(1, 9)))


def refreshed(ms: Millstream) -> dict[str, RefreshReport]:
    """All of them at one cut, each compared with its query in that cut."""
    reports = {report.name: report for report in ms.refresh_all()}
    assert len({report.data_timestamp for report in reports.values()}) == 1
    for name in GRAPH:
        found = ms.verify(name)
        assert found.ok, found
    return reports


def test_a_graph_of_stream_tables_is_exact_and_moves_to_one_moment(ms: Millstream, writer: psycopg.Connection) -> None:
    dice = random.Random(4)
    for _ in range(6):
        change(writer, dice)
        reports = refreshed(ms)
        assert {report.action for report in reports.values()} <= {"DIFFERENTIAL", "NO_DATA"}
        assert reports["totals"].action == "DIFFERENTIAL"
        assert reports["by_region"].action == "DIFFERENTIAL"
    # What was passed on once is not passed on again.
    again = ms.refresh_all()
    assert {report.action for report in again} == {"NO_DATA"}


def test_one_refreshed_alone_is_exact_over_what_its_sources_are(ms: Millstream, writer: psycopg.Connection) -> None:
    dice = random.Random(5)
    for name in ("totals", "joined", "by_region", "large", "totals", "large", "joined"):
        change(writer, dice)
        ms.refresh(name)
        assert ms.verify(name).ok
    refreshed(ms)


def test_one_that_others_read_is_not_dropped_under_them(ms: Millstream) -> None:
    with pytest.raises(StillUsed, match="large"):
        ms.drop_stream_table("totals")
    ms.drop_stream_table("totals", cascade=True)
    assert ms.status() == []
