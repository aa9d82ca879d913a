"""From commit to visible: how long a row takes to show in stream tables, under 1,000 changes per
second.

Five stream tables over three tables, one of them a join and an aggregate. A probe commits a row,
and the stream table that shows it is looked at until it does. Triggers and log, in one run; p50 and
p95 in milliseconds, and as multiples of a bare Spark round trip measured beside it.
"""

from __future__ import annotations

import os
import statistics
import time
from threading import Event, Thread

import pyarrow as pa
from millstream.capture.transition.steps import Steps

import millstream
from millstream.catalog import sources
from millstream.client import Millstream
from millstream.postgres.connection import connect
from millstream.settings import Settings

SECONDS = float(os.environ.get("BENCH_SECONDS", "20"))
RATE = 1000
SQL = """
CREATE TABLE public.orders (id bigint PRIMARY KEY, customer int, amount numeric, at timestamptz DEFAULT now());
CREATE TABLE public.customers (id int PRIMARY KEY, region text);
CREATE TABLE public.probes (id int PRIMARY KEY);
INSERT INTO public.customers SELECT g, 'region ' || g % 10 FROM generate_series(1, 1000) AS g;
INSERT INTO public.orders SELECT g, 1 + g % 1000, g % 100 FROM generate_series(1, 100000) AS g;
CREATE INDEX ON public.orders (customer);
ANALYZE;
"""
CHANGE = (
    "UPDATE orders SET amount = (amount + 7) %% 100 WHERE id BETWEEN %(first)s AND %(first)s + 9"
)
VIEWS = {
    "seen": "SELECT id FROM probes",
    "large": "SELECT id, amount FROM orders WHERE amount > 95",
    "by_customer": "SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer",
    "by_region": "SELECT c.region, sum(o.amount) AS total FROM orders AS o JOIN customers AS c ON c.id = o.customer "
    "GROUP BY c.region",
    "regions": "SELECT DISTINCT region FROM customers",
}


def main() -> None:
    settings = Settings(auto_replica_identity=True, cdc_mode="trigger")
    with millstream.embedded() as server, millstream.connect(server.dsn, settings=settings) as ms:
        ms.app.conn.execute(SQL)
        for name, query in VIEWS.items():
            ms.create_stream_table(name, query, schedule="200ms")
        floor = round_trip(ms)
        print(f"bare Spark round trip {floor:.0f} ms")
        measured(ms, server.dsn, "triggers", floor)
        for name in VIEWS:
            ms.alter_stream_table(name, cdc_mode="auto")
        while any(source.mode != "WAL" for source in sources.every(ms.app.conn)):
            ms.app.steps = Steps()
            ms.tick()
        measured(ms, server.dsn, "log", floor)
        assert all(ms.verify(name).ok for name in VIEWS)


def measured(ms: Millstream, dsn: str, way: str, floor: float) -> None:
    """Refresh on time under traffic, and tell how late probes were seen."""
    ended, late = Event(), list[float]()
    threads = [
        Thread(target=traffic, args=(dsn, ended)),
        Thread(target=probe, args=(dsn, ended, late)),
    ]
    for thread in threads:
        thread.start()
    until, ticks = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        began = time.monotonic()
        ms.tick()
        ticks += 1
        time.sleep(max(0.0, began + 0.2 - time.monotonic()))
    ended.set()
    while any(thread.is_alive() for thread in threads):
        ms.refresh_all()
    cuts = statistics.quantiles(late, n=20)
    p50, p95 = cuts[9], cuts[18]
    print(
        f"{way:9} p50 {p50:6.0f} ms ({p50 / floor:4.1f} round trips)   p95 {p95:6.0f} ms ({p95 / floor:4.1f})"
        f"   {len(late)} probes, {ticks} ticks"
    )


def traffic(dsn: str, ended: Event) -> None:
    """A thousand changes per second, in transactions of ten."""
    with connect(dsn) as conn:
        began, done = time.monotonic(), 0
        while not ended.is_set():
            conn.execute(CHANGE, {"first": done % 99_990})
            done += 10
            time.sleep(max(0.0, began + done / RATE - time.monotonic()))


def probe(dsn: str, ended: Event, late: list[float]) -> None:
    """Commit a row, look until it shows, again and again."""
    with connect(dsn) as conn:
        number = conn.execute("SELECT coalesce(max(id), 0) FROM probes").fetchall()[0][0]
        while not ended.is_set():
            number += 1
            conn.execute("INSERT INTO probes VALUES (%s)", (number,))
            began = time.perf_counter()
            while not conn.execute("SELECT 1 FROM seen WHERE id = %s", (number,)).fetchone():
                time.sleep(0.002)
            late.append((time.perf_counter() - began) * 1000)


def round_trip(ms: Millstream) -> float:
    """The median of a thousand rows in, GROUP BY, out."""
    spark = ms.app.engine().spark
    rows = pa.table({"k": [n % 10 for n in range(1000)], "v": list(range(1000))})
    times = []
    for _ in range(20):
        began = time.perf_counter()
        spark.createDataFrame(rows).groupBy("k").sum("v").toArrow()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


if __name__ == "__main__":
    main()
