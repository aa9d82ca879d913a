"""Queries that ask for the time: exact at every refresh, with and without changes, and idle where
no row turns.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.postgres.connection import Connection, connect
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = """
    CREATE TABLE visits (id int PRIMARY KEY, shop int, at timestamptz, amount numeric(8,2), keep interval);
    CREATE TABLE shops (id int PRIMARY KEY, opened timestamp, day date, name text);
    CREATE INDEX ON visits (at);
"""
KEPT = {
    "a sliding window": "SELECT id, at FROM visits WHERE at > now() - interval '2 seconds'",
    "two bounds": "SELECT id FROM visits WHERE at BETWEEN now() - interval '1 second' AND now() + interval '1 second'",
    "the other way round": "SELECT id FROM visits WHERE now() - at > interval '1 second'",
    "a time to live": "SELECT id FROM visits WHERE at + keep > now()",
    "groups of a window": "SELECT shop, count(*) AS n, sum(amount) AS s, max(at) AS last FROM visits"
    " WHERE at > now() - interval '1 second' GROUP BY shop",
    "the time itself": "SELECT id, now() AS seen, now() - at AS since FROM visits",
    "all words": "SELECT id, current_date AS a, current_timestamp(2) AS b, localtimestamp AS c, localtime(0) AS d,"
    " current_time AS e, transaction_timestamp() AS f, localtimestamp(1) AS g FROM shops",
    "today": "SELECT id FROM shops WHERE day = current_date",
    "before today or after now": "SELECT id FROM shops WHERE day < current_date OR opened > localtimestamp",
    "inside an aggregate": "SELECT shop, count(*) FILTER (WHERE at > now()) AS coming,"
    " sum(CASE WHEN at <= now() THEN amount END) AS gone FROM visits GROUP BY shop",
    "of groups": "SELECT shop, max(at) AS last, now() AS seen FROM visits GROUP BY shop HAVING max(at) > now()",
    "of everything": "SELECT count(*) AS n FROM visits WHERE at < now()",
    "exists": "SELECT id FROM shops AS s WHERE EXISTS (SELECT FROM visits AS v WHERE v.shop = s.id AND v.at > now())",
    "exists none": "SELECT id FROM shops AS s WHERE NOT EXISTS"
    " (SELECT FROM visits AS v WHERE v.shop = s.id AND v.at > now() AND now() - v.at < interval '1 second')",
    "in": "SELECT id FROM shops WHERE id NOT IN (SELECT shop FROM visits WHERE at > now() AND shop IS NOT NULL)",
    "joined": "SELECT s.id, v.id AS visit FROM shops AS s JOIN visits AS v ON v.shop = s.id AND v.at > now()"
    " WHERE s.opened < localtimestamp",
    "left": "SELECT s.id, v.id AS visit FROM shops AS s LEFT JOIN visits AS v ON v.shop = s.id AND v.at > now()",
    "right": "SELECT s.id, v.id AS visit FROM visits AS v RIGHT JOIN shops AS s ON v.shop = s.id AND v.at > now()",
    "full": "SELECT s.id, v.id AS visit FROM shops AS s FULL JOIN visits AS v ON v.shop = s.id AND v.at > now()",
    "across": "SELECT v.id, s.id AS shop FROM visits AS v JOIN shops AS s ON s.id = v.shop"
    " WHERE v.at + (s.day - current_date) * interval '1 second' > now()",
    "a scalar": "SELECT id, (SELECT now() - max(at) FROM visits AS v WHERE v.shop = s.id) AS since FROM shops AS s",
    "a scalar of a window": "SELECT id, (SELECT count(*) FROM visits AS v WHERE v.shop = s.id AND v.at > now()) AS n"
    " FROM shops AS s",
    "above a mean that moves": "SELECT id FROM visits WHERE amount > (SELECT avg(amount) FROM visits WHERE at > now())",
    "from nowhere": "SELECT id FROM visits WHERE at > (SELECT now())",
    "age": "SELECT id, age(at) AS old FROM visits WHERE age(at) < interval '1 day'",
    "by the minute": "SELECT id FROM visits WHERE at >= date_trunc('minute', now()) AND at::date = current_date",
    "the first": "SELECT id, at FROM visits WHERE at > now() ORDER BY at, id LIMIT 3",
    "ranked": "SELECT id, row_number() OVER (PARTITION BY shop ORDER BY at, id) AS r FROM visits WHERE at > now()",
    "once": "SELECT shop FROM visits WHERE at > now() UNION SELECT id FROM shops WHERE opened > localtimestamp",
    "in a CTE, twice": "WITH w AS (SELECT * FROM visits WHERE at > now())"
    " SELECT a.id, b.id AS other FROM w AS a JOIN w AS b ON b.shop = a.shop",
    "rolled up": "SELECT shop, count(*) AS n FROM visits WHERE at > now() GROUP BY ROLLUP (shop)",
    "in a view": "SELECT id, shop FROM coming WHERE shop > 0",
    "recursing": "WITH RECURSIVE r (id, shop) AS (SELECT id, shop FROM visits WHERE at > now() UNION"
    " SELECT s.id, r.shop + 1 FROM r JOIN shops AS s ON s.id = r.shop AND s.opened > localtimestamp WHERE r.shop < 4)"
    " SELECT id, shop FROM r",
    "beside a series": "SELECT v.id, g.n FROM visits AS v, generate_series(1, extract(second FROM now())::int / 20)"
    " AS g (n) WHERE v.shop = 1",
}


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database, application_name="application") as writer:
        writer.execute(TABLES)
        writer.execute("CREATE VIEW coming AS SELECT id, shop FROM visits WHERE at > now()")
        yield writer


@pytest.fixture
def ms(conn: Connection, database: str, spark: SparkSession) -> Iterator[Millstream]:
    with millstream.connect(database, spark=spark) as client:
        client.app.witness = witness
        yield client


def witness(now: Cut, job: Job, report: RefreshReport) -> None:
    oracle.check(now.conn, job.table.query, job.table.qualified)


def fill(conn: Connection, rnd: random.Random, first: int, number: int) -> None:
    """Visits and shops around now, and some that time does not reach."""
    # How long ago infinity was, PostgreSQL tells from 17 on.
    never = "'infinity'" if conn.info.server_version >= 170000 else "NULL"
    for id in range(first, first + number):
        offset = rnd.choice([f"{rnd.uniform(-3, 4):.2f} seconds"] * 5 + ["-40 days", "1 day"])
        at = rnd.choice([f"clock_timestamp() + interval '{offset}'"] * 6 + ["NULL", never])
        amount, keep = (
            rnd.choice(["NULL", "1.5", "3", "8"]),
            rnd.choice(["NULL", "'1 second'", "'-1 second'"]),
        )
        conn.execute(
            f"INSERT INTO visits VALUES ({id}, {rnd.randrange(4)}, {at}, {amount}, {keep})".encode()
        )
        day = rnd.choice(["NULL", "current_date", "current_date - 1", "current_date + 2"])
        conn.execute(
            f"INSERT INTO shops VALUES ({id}, {at}, {day}, 's') ON CONFLICT DO NOTHING".encode()
        )


def test_each_is_exact_at_every_time(ms: Millstream, conn: Connection) -> None:
    rnd = random.Random(7)
    fill(conn, rnd, 0, 16)
    for number, query in enumerate(KEPT.values()):
        ms.create_stream_table(f"st_{number}", query, refresh_mode="DIFFERENTIAL")
    for number in range(5):
        if number in (1, 3):
            fill(conn, rnd, 100 * number, 6)
            conn.execute(
                "UPDATE visits SET at = at + interval '1 second', shop = 2 WHERE id % 5 = 1"
            )
            conn.execute(f"DELETE FROM visits WHERE id % 7 = {number}".encode())
        time.sleep(0.3)
        actions = {report.action for report in ms.refresh_all()}
        assert actions <= {"DIFFERENTIAL", "NO_DATA"}


def test_a_row_expires_without_a_change(ms: Millstream, conn: Connection) -> None:
    conn.execute(
        "INSERT INTO visits VALUES (1, 1, clock_timestamp() + interval '3 seconds'), (2, 1, 'infinity')"
    )
    ms.create_stream_table("coming_soon", "SELECT id, at FROM visits WHERE at > now()")
    assert [row[0] for row in conn.execute("SELECT id FROM coming_soon ORDER BY id")] == [1, 2]
    time.sleep(3.2)
    report = ms.refresh("coming_soon")
    assert (report.action, report.reason, report.rows_deleted) == ("DIFFERENTIAL", "CLOCK", 1)
    idle = ms.refresh("coming_soon")
    assert (idle.action, idle.spark_jobs, idle.rows_read) == ("NO_DATA", 0, 0)
    (stored,) = conn.execute("SELECT data_timestamp FROM millstream.stream_tables").fetchall()[0]
    assert stored == idle.data_timestamp > report.data_timestamp


def test_a_day_that_is_still_today_changes_nothing(ms: Millstream, conn: Connection) -> None:
    conn.execute(
        "INSERT INTO shops SELECT n, NULL, current_date, 'x' FROM generate_series(1, 9) AS n"
    )
    ms.create_stream_table(
        "today", "SELECT id, current_date AS d FROM shops WHERE day <= current_date"
    )
    report = ms.refresh("today")
    if report.data_timestamp.hour or report.data_timestamp.minute > 1:  # no day has begun meanwhile
        assert (report.action, report.spark_jobs) == ("NO_DATA", 0)


def test_another_process_goes_on_where_the_last_one_was(
    ms: Millstream, conn: Connection, database: str
) -> None:
    conn.execute("INSERT INTO visits VALUES (1, 1, clock_timestamp() + interval '2 seconds')")
    ms.create_stream_table(
        "coming_soon", "SELECT shop, count(*) AS n FROM visits WHERE at > now() GROUP BY shop"
    )
    ms.close()
    time.sleep(2.2)
    with millstream.connect(database) as again:
        again.app.witness = witness
        report = again.refresh("coming_soon")
    assert (report.action, report.reason, report.rows_deleted) == ("DIFFERENTIAL", "CLOCK", 1)


def test_in_mode_full_every_refresh_computes_all_of_it(ms: Millstream, conn: Connection) -> None:
    conn.execute("INSERT INTO visits VALUES (1, 1, clock_timestamp() + interval '2 seconds')")
    ms.create_stream_table(
        "coming_soon", "SELECT id FROM visits WHERE at > now()", refresh_mode="FULL"
    )
    time.sleep(2.2)
    assert [
        (one.action, one.rows_deleted)
        for one in (ms.refresh("coming_soon"), ms.refresh("coming_soon"))
    ] == [
        ("FULL", 1),
        ("FULL", 0),
    ]
    ms.alter_stream_table("coming_soon", refresh_mode="DIFFERENTIAL")
    assert ms.refresh("coming_soon").action == "NO_DATA"


def test_rows_that_expire_are_passed_on_to_readers(ms: Millstream, conn: Connection) -> None:
    conn.execute(
        "INSERT INTO visits VALUES (1, 1, clock_timestamp() + interval '3 seconds'), (2, 1, 'infinity')"
    )
    ms.create_stream_table("coming_soon", "SELECT id, shop FROM visits WHERE at > now()")
    ms.create_stream_table("expected", "SELECT shop, count(*) AS n FROM coming_soon GROUP BY shop")
    time.sleep(3.2)
    assert {one.name: one.action for one in ms.refresh_all()} == {
        "coming_soon": "DIFFERENTIAL",
        "expected": "DIFFERENTIAL",
    }
    assert conn.execute("SELECT shop, n FROM expected").fetchall() == [(1, 1)]


def test_a_stream_table_without_a_clock_stays_idle(ms: Millstream, conn: Connection) -> None:
    conn.execute("INSERT INTO visits VALUES (1, 1, 'infinity')")
    ms.create_stream_table("plain", "SELECT id FROM visits")
    report = ms.refresh("plain")
    assert (report.action, report.phases) == ("NO_DATA", {})


def test_days_are_those_of_the_session_that_creates(
    conn: Connection, database: str, spark: SparkSession
) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {admin.info.dbname} SET TimeZone = 'Pacific/Kiritimati'")
    conn.execute("INSERT INTO shops VALUES (1, NULL, NULL, 'x')")
    query = "SELECT id, current_date AS d, date_trunc('hour', now()) AS h FROM shops"
    with millstream.connect(database, spark=spark) as ms:
        ms.create_stream_table("days", query)
        ms.create_stream_table("of_utc", query, settings={"timezone": "UTC"})
        assert [dict(one.settings) for one in ms.status()] == [
            {"TimeZone": "Pacific/Kiritimati"},
            {"TimeZone": "UTC"},
        ]
    zoned = "SELECT d = (h AT TIME ZONE %s)::date FROM days"
    assert conn.execute(zoned, ("Pacific/Kiritimati",)).fetchall() == [(True,)]
    assert conn.execute(zoned.replace("days", "of_utc"), ("UTC",)).fetchall() == [(True,)]
