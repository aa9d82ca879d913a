"""Cost follows the change: over 100,000 rows, ten changed ones read rows in proportion to the keys
they touch.

`most` is how many rows a refresh may read; a table read as a whole would be at least 10,000. Where
all of a partition or of a table must be read (a window without PARTITION BY, a bound that moves for
all rows), docs/operators says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

import millstream
from millstream import Millstream
from millstream.bundled.server import Server
from millstream.refresh.report import RefreshReport

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = """
    CREATE TABLE sales (id int PRIMARY KEY, shop int NOT NULL, amount numeric(10,2), tags int[], note text);
    CREATE TABLE shops (id int PRIMARY KEY, town int NOT NULL, name text);
    CREATE TABLE visits (shop int, seconds int);
    CREATE TABLE marked (shop int, why text);
    INSERT INTO sales
    SELECT n, n % 10000 + 1, n % 97, ARRAY[n % 5, n % 7], 'n' || n % 11 FROM generate_series(1, 100000) AS n;
    INSERT INTO shops SELECT n, n % 1000 + 1, 'shop ' || n FROM generate_series(1, 12000) AS n;
    INSERT INTO visits SELECT n % 9000 + 1, n % 60 FROM generate_series(1, 100000) AS n;
    INSERT INTO marked SELECT nullif(n, 20), 'why ' || n FROM generate_series(1, 20) AS n;
    CREATE INDEX ON sales (shop); CREATE INDEX ON sales (amount);
    CREATE INDEX ON visits (shop); CREATE INDEX ON shops (town);
    CREATE INDEX ON shops USING gist (int4range(id * 8, id * 8 + 3));
    ANALYZE;
"""
CHANGE = """
    UPDATE sales SET amount = amount + 1 WHERE id IN (5, 10005, 777);
    UPDATE sales SET shop = 4321 WHERE id = 99;
    DELETE FROM sales WHERE id IN (1234, 1235);
    INSERT INTO sales VALUES (200001, 17, 3, '{1}', 'new'), (200002, 11999, 4, '{2}', 'new');
    INSERT INTO visits VALUES (42, 7);
    INSERT INTO marked VALUES (18, 'new');
    UPDATE shops SET town = 5 WHERE id = 77;
"""


@dataclass(frozen=True)
class Case:
    """A query and how many rows its refresh may read after ten changes."""

    query: str
    most: int


CASES = {
    "filter": Case("SELECT id, shop, amount FROM sales WHERE amount > 50", 40),
    "inner join": Case("SELECT s.id, h.name FROM sales AS s JOIN shops AS h ON h.id = s.shop", 60),
    "left join": Case(
        "SELECT h.id, s.id AS sale FROM shops AS h LEFT JOIN sales AS s ON s.shop = h.id", 400
    ),
    "pairs by a range": Case(
        "SELECT s.id, h.id AS span FROM sales AS s JOIN shops AS h ON int4range(h.id * 8, h.id * 8 + 3) @> s.id",
        120,
    ),
    "left join by a range": Case(
        "SELECT s.id, h.id AS span FROM sales AS s LEFT JOIN shops AS h ON int4range(h.id * 8, h.id * 8 + 3) @> s.id",
        200,
    ),
    "full join": Case(
        "SELECT h.id, v.seconds FROM shops AS h FULL JOIN visits AS v ON v.shop = h.id", 200
    ),
    "exists": Case(
        "SELECT id FROM shops AS h WHERE EXISTS (SELECT FROM sales AS s WHERE s.shop = h.id)", 400
    ),
    "not in": Case("SELECT id FROM shops WHERE id NOT IN (SELECT shop FROM sales)", 400),
    "in of groups": Case(
        "SELECT id FROM shops WHERE id IN (SELECT shop FROM sales GROUP BY shop HAVING sum(amount) > 400)",
        400,
    ),
    "scalar subquery": Case(
        "SELECT h.id, (SELECT sum(s.amount) FROM sales AS s WHERE s.shop = h.id) AS sold FROM shops AS h",
        200,
    ),
    "beside its group": Case(
        "SELECT s.id FROM sales AS s JOIN shops AS h ON h.id = s.shop "
        "WHERE h.town = 5 AND s.amount > (SELECT avg(p.amount) FROM sales AS p WHERE p.shop = h.id)",
        200,
    ),
    "aggregate": Case(
        "SELECT shop, sum(amount) AS sold, count(*) AS n FROM sales GROUP BY shop", 40
    ),
    "extremes": Case(
        "SELECT shop, min(amount) AS least, max(amount) AS most FROM sales GROUP BY shop", 300
    ),
    "gathered": Case(
        "SELECT shop, string_agg(note, ',' ORDER BY id) AS notes FROM sales GROUP BY shop", 300
    ),
    "count distinct beside sums": Case(
        "SELECT shop, count(DISTINCT note) AS notes, sum(amount) AS total, count(*) AS n FROM sales GROUP BY shop",
        60,
    ),
    "count distinct": Case(
        "SELECT shop, count(DISTINCT note) AS notes FROM sales GROUP BY shop", 60
    ),
    "aggregate of aggregates": Case(
        "SELECT n, count(*) AS shops FROM (SELECT shop, count(*) AS n FROM sales GROUP BY shop) AS q GROUP BY n",
        100,
    ),
    "distinct": Case("SELECT DISTINCT shop, note FROM sales", 60),
    "union": Case("SELECT shop FROM sales UNION SELECT id FROM shops", 60),
    "except": Case("SELECT id FROM shops EXCEPT SELECT shop FROM visits", 60),
    "intersect all": Case("SELECT shop FROM sales INTERSECT ALL SELECT shop FROM visits", 250),
    "grouping sets": Case(
        "SELECT shop, note, count(*) AS n FROM sales GROUP BY ROLLUP (shop, note)", 200
    ),
    "window": Case(
        "SELECT id, rank() OVER (PARTITION BY shop ORDER BY amount) AS place FROM sales", 400
    ),
    "distinct on": Case(
        "SELECT DISTINCT ON (shop) shop, id, amount FROM sales ORDER BY shop, amount DESC, id", 400
    ),
    "limit": Case("SELECT id, amount FROM sales ORDER BY amount DESC, id LIMIT 10", 60),
    "limit of groups": Case(
        "SELECT shop, sum(amount) AS sold FROM sales GROUP BY shop ORDER BY sold DESC, shop LIMIT 5",
        80,
    ),
    "lateral": Case(
        "SELECT h.id, q.id AS sale FROM shops AS h, "
        "LATERAL (SELECT s.id FROM sales AS s WHERE s.shop = h.id ORDER BY s.amount DESC, s.id LIMIT 3) AS q",
        200,
    ),
    "lateral of one row": Case(
        "SELECT h.id, q.n, q.sold FROM shops AS h, "
        "LATERAL (SELECT count(*) AS n, sum(s.amount) AS sold FROM sales AS s WHERE s.shop = h.id) AS q",
        200,
    ),
    "given": Case(
        "SELECT h.id, (SELECT count(*) FROM sales AS s WHERE s.shop = h.id AND s.amount > h.town) AS n FROM shops AS h",
        150,
    ),
    "one of several": Case(
        "SELECT s.id, (SELECT h.name FROM shops AS h WHERE h.town = s.shop % 2 + 2000) AS name FROM sales AS s",
        100,
    ),
    "any of a correlated subquery": Case(
        "SELECT h.id FROM shops AS h WHERE h.town < ANY (SELECT s.amount FROM sales AS s WHERE s.shop = h.id)",
        400,
    ),
    # With few rows on one side: PostgreSQL compares all pairs.
    "NULLs are equal": Case(
        "SELECT s.id, m.why FROM sales AS s JOIN marked AS m ON m.shop IS NOT DISTINCT FROM s.shop",
        60,
    ),
    "function in FROM": Case("SELECT s.id, t.tag FROM sales AS s, unnest(s.tags) AS t (tag)", 60),
    "flip by a mean": Case(
        "SELECT id, shop FROM sales WHERE amount > (SELECT avg(amount) FROM sales)", 60
    ),
    "flip of a join": Case(
        "SELECT s.id, h.name FROM sales AS s JOIN shops AS h ON h.id = s.shop "
        "WHERE s.amount > (SELECT avg(amount) FROM sales)",
        100,
    ),
    "flip of groups": Case(
        "SELECT shop, sum(amount) AS sold FROM sales GROUP BY shop "
        "HAVING sum(amount) > (SELECT sum(amount) / 10000 FROM sales)",
        100,
    ),
    "kept rows": Case(
        "SELECT s.id FROM sales AS s JOIN shops AS h ON h.id = s.shop WHERE s.note || h.name LIKE '%1%'",
        100,
    ),
}


@pytest.fixture(scope="module")
def database(server: Server) -> Iterator[str]:
    """One database for all cases."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE cost")
        yield server.dsn_for("tester", "cost")
        admin.execute("DROP DATABASE cost WITH (FORCE)")


@pytest.fixture(scope="module")
def reports(database: str) -> Iterator[dict[str, RefreshReport]]:
    """All of them created, the ten changes made, all refreshed at one cut and found right."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
        with millstream.connect(database) as ms:
            names = _created(ms)
            conn.execute(CHANGE)
            found = {report.name: report for report in ms.refresh_all()}
            wrong = [what for what, name in names.items() if not ms.verify(name).ok]
            assert not wrong
            yield {what: found[name] for what, name in names.items()}


def _created(ms: Millstream) -> dict[str, str]:
    names = {what: f"st_{number}" for number, what in enumerate(CASES)}
    for what, case in CASES.items():
        ms.create_stream_table(names[what], case.query, refresh_mode="DIFFERENTIAL")
    return names


@pytest.mark.parametrize("what", CASES)
def test_ten_changes_read_few_rows(reports: dict[str, RefreshReport], what: str) -> None:
    report = reports[what]
    assert report.action == "DIFFERENTIAL"
    assert report.rows_read <= CASES[what].most, report.inputs


EXPIRING = """
    CREATE TABLE signs (id int PRIMARY KEY, shop int, at timestamptz NOT NULL);
    INSERT INTO signs
    SELECT n, n % 1000, now() - interval '1 hour' + (n - 50000) * interval '20 milliseconds'
    FROM generate_series(1, 100000) AS n;
    CREATE INDEX ON signs (at);
    ANALYZE signs;
"""
RECENT = {
    "rows": "SELECT id, shop FROM signs WHERE at > now() - interval '1 hour'",
    "groups": "SELECT shop, count(*) AS n FROM signs WHERE at > now() - interval '1 hour' GROUP BY shop",
}


@pytest.mark.parametrize("what", RECENT)
def test_a_refresh_reads_what_has_expired_and_nothing_else(database: str, what: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn, millstream.connect(database) as ms:
        conn.execute("DROP TABLE IF EXISTS signs CASCADE")
        conn.execute(EXPIRING)
        first = ms.create_stream_table("recent", RECENT[what], refresh_mode="DIFFERENTIAL")
        second = ms.refresh("recent")
        assert first is not None
        gone = conn.execute(
            "SELECT count(*) FROM signs WHERE at > %s - interval '1 hour' AND at <= %s - interval '1 hour'",
            (first.data_timestamp, second.data_timestamp),
        ).fetchall()[0][0]
        assert (second.action, second.reason, second.rows_read) == ("DIFFERENTIAL", "CLOCK", gone)
        assert 0 < gone < 20_000
        assert {one.path for one in second.inputs} == {"changes", "lookup"}
        assert ms.verify("recent").ok
        ms.drop_stream_table("recent")
