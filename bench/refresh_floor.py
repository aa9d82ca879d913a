"""How much a small refresh costs beyond Spark itself.

    median refresh of a join + aggregate over 1,000,000 orders with 10 changes
    -------------------------------------------------------------------------      at most 5
    median bare Spark round trip: 1,000 Arrow rows in, group by, toArrow() out

and one tick over 100 stream tables where nothing has changed: no Spark job, at most 50 ms.
"""

from __future__ import annotations

import itertools
import os

import numpy
import psycopg
import pyarrow as pa

import millstream
from shop import QUERY, change, fill, median_ms

ORDERS = int(os.environ.get("BENCH_ORDERS", "1000000"))
TIMES = int(os.environ.get("BENCH_TIMES", "30"))


def main() -> None:
    with millstream.embedded() as server, psycopg.connect(server.dsn, autocommit=True) as conn:
        fill(conn, ORDERS, 200_000)
        with millstream.connect(server.dsn) as ms:
            ms.create_stream_table("totals", QUERY)
            floor(ms)
            refreshes(ms, conn, warm=True)
            bare, small = floor(ms), refreshes(ms, conn)
            print(f"bare Spark round trip  {bare:8.1f} ms")
            print(f"refresh of 10 changes  {small:8.1f} ms")
            print(f"ratio                  {small / bare:8.2f}   (at most 5)")
            nothing(ms, conn)


def floor(ms: millstream.Millstream) -> float:
    """The bare round trip."""
    spark = ms.app.engine().spark
    table = pa.table({"k": numpy.arange(1000) % 50, "v": numpy.arange(1000)})
    return median_ms(lambda: spark.createDataFrame(table).groupBy("k").sum("v").toArrow(), TIMES)


_seeds = itertools.count(1)


def refreshes(
    ms: millstream.Millstream, conn: psycopg.Connection[tuple[object, ...]], *, warm: bool = False
) -> float:
    """Refreshes of ten changes each; only the refresh is timed."""
    taken = []
    for _ in range(TIMES):
        change(conn, next(_seeds))
        taken.append(median_ms(lambda: _differential(ms), 1))
    if not warm:
        report = ms.history("totals", 1)[0]
        print(
            "phases of the last     "
            + "  ".join(f"{name} {took:.0f} ms" for name, took in report.phases.items())
        )
    return sorted(taken)[len(taken) // 2]


def _differential(ms: millstream.Millstream) -> None:
    report = ms.refresh("totals")
    assert report.action == "DIFFERENTIAL", report.action


def nothing(ms: millstream.Millstream, conn: psycopg.Connection[tuple[object, ...]]) -> None:
    """A tick over a hundred idle stream tables."""
    for number in range(100):
        conn.execute(f"CREATE TABLE idle_{number} (id int PRIMARY KEY, v int)".encode())
        ms.create_stream_table(
            f"view_{number}", f"SELECT id, v FROM idle_{number} WHERE v > 0", schedule="continuous"
        )
    ms.drop_stream_table("totals")
    ms.tick()
    jobs = 0

    def tick() -> None:
        nonlocal jobs
        reports = ms.tick()
        assert len(reports) == 100
        jobs += sum(report.spark_jobs for report in reports)

    took = median_ms(tick, TIMES)
    print(f"tick, 100 idle tables  {took:8.1f} ms  (at most 50), {jobs} Spark jobs")


if __name__ == "__main__":
    main()
