"""TPC-H in little memory: every stream table is created, refreshed and compared with its query, by
a driver of 1 GB.

    python bench/memory.py 3 1GB        scale and memory of Spark's driver; these are the defaults

Printed for each query: rows stored, seconds to create it, and the most memory that Java and Python
have had so far. The driver's heap is bounded by the setting; Java itself needs some hundred
megabytes beside it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from psycopg import sql
from pyspark import SparkContext

import millstream
from millstream.postgres.connection import connect
from millstream.settings import Settings
from millstream.testing.tpch.changes import TpchChanges
from millstream.testing.tpch.load import load
from millstream.testing.tpch.queries import queries

SCALE = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
MEMORY = sys.argv[2] if len(sys.argv) > 2 else "1GB"
SERVER = {"max_wal_size": "8GB", "shared_buffers": "1GB", "work_mem": "64MB"}
# So much of each table is changed before the differential refreshes.
SHARE = 0.001


def main() -> None:
    with millstream.embedded(settings=SERVER) as server, connect(server.dsn) as conn:
        sizes = load(conn, SCALE)
        print(
            f"TPC-H, scale {SCALE:g}: {', '.join(f'{rows:,} {table}' for table, rows in sizes.items())}",
            flush=True,
        )
        print(
            "| query | rows | create s | Java's peak MB | Python's peak MB |\n|---|--:|--:|--:|--:|",
            flush=True,
        )
        settings = Settings(spark_driver_memory=MEMORY)
        with millstream.connect(server.dsn, settings=settings) as ms:
            for name, query in queries(SCALE).items():
                started = time.perf_counter()
                ms.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
                seconds = time.perf_counter() - started
                (rows,) = conn.execute(
                    sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))
                ).fetchall()[0]
                print(
                    f"| {name} | {rows:,} | {seconds:.0f} | {java_peak()} | {peak('self')} |",
                    flush=True,
                )
            TpchChanges(conn, share=SHARE).cycle()
            for name in queries(SCALE):
                report = ms.refresh(name)
                assert report.action == "DIFFERENTIAL", report
                print(
                    f"{name}: {report.action}, {report.rows_read:,} rows read", end=", ", flush=True
                )
                found = ms.verify(name)
                print("exact" if found.ok else f"WRONG: {found}", flush=True)
            print(f"peak of Java {java_peak()} MB, of Python {peak('self')} MB")


def java_peak() -> int:
    gateway = SparkContext._gateway
    assert gateway is not None
    return peak(str(gateway.proc.pid))


def peak(process: str) -> int:
    """The most memory that a process has had, in megabytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


if __name__ == "__main__":
    main()
