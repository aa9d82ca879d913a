"""The cost of a refresh follows the change, not the tables.

Orders joined with customers and aggregated; ten orders change. Rows read and sequential scans are
counted by the report and by PostgreSQL's own statistics, for 1,000,000 orders and for 10,000,000.

    rows read       below 200, and no more with ten times the orders
    sequential      no scan of either table
"""

from __future__ import annotations

import os
import time

import psycopg

import millstream
from shop import QUERY, Connection, change, fill

SIZES = [int(size) for size in os.environ.get("BENCH_SIZES", "1000000,10000000").split(",")]


def main() -> None:
    print(
        f"{'orders':>12} {'changed':>8} {'rows read':>10} {'sequential':>11} {'action':>14}", end=""
    )
    print(f" {'initial s':>10} {'refresh ms':>11}")
    for size in SIZES:
        with (
            millstream.embedded(settings={"max_wal_size": "8GB"}) as server,
            psycopg.connect(server.dsn, autocommit=True) as conn,
        ):
            measure(server.dsn, conn, size)


def measure(dsn: str, conn: Connection, orders: int) -> None:
    fill(conn, orders, 200_000)
    with millstream.connect(dsn) as ms:
        ms.app.engine()
        started = time.perf_counter()
        ms.create_stream_table("totals", QUERY)
        initial = time.perf_counter() - started
        for seed in range(1, 6):
            change(conn, seed)
            ms.refresh("totals")
        before = sequential_scans(conn)
        change(conn, 99)
        report = ms.refresh("totals")
        scans = sequential_scans(conn) - before
        print(
            f"{orders:>12,} {10:>8} {report.rows_read:>10} {scans:>11} {report.action:>14} {initial:>10.1f} "
            f"{report.duration_ms:>11.0f}"
        )
        assert ms.verify("totals").ok
        assert report.action == "DIFFERENTIAL"
        assert report.rows_read < 200
        assert scans == 0


def sequential_scans(conn: Connection) -> int:
    """As PostgreSQL counts them; the statistics of other sessions arrive within a second."""
    time.sleep(1.5)
    row = conn.execute(
        "SELECT sum(seq_scan)::int FROM pg_stat_user_tables WHERE relname IN ('orders', 'customers')"
    ).fetchone()
    assert row is not None
    scans = row[0]
    assert isinstance(scans, int)
    return scans


if __name__ == "__main__":
    main()
