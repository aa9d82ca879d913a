"""What a service costs that has nothing to do, and whether what has not changed slows down what
has.

processor time of service, Java and sessions while 1,000 stream tables over 100 sources are idle
------------------------------------------------------------------------------------------------   at most 0.05
time

time until the last of 10 changed stream tables of 1,000 shows its change
-------------------------------------------------------------------------                          about 1
the same with 10 stream tables in all
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

import millstream
from millstream.bundled.server import children

TABLES, SOURCES = (
    int(os.environ.get("BENCH_TABLES", "1000")),
    int(os.environ.get("BENCH_SOURCES", "100")),
)
SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
CHANGED, WARMED_UP, TIMES = 10, 5, 15
TICKS = 1 / os.sysconf("SC_CLK_TCK")

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True)
class Bench:
    """A service at work beside its own server."""

    conn: Connection
    pid: int


def main() -> None:
    """Measure the two services side by side, in turns: what else the machine does slows both."""
    with service_of(CHANGED) as few, service_of(TABLES) as many:
        for number in range(WARMED_UP):
            until_seen(few.conn, number), until_seen(many.conn, number)
        pairs = [
            (until_seen(few.conn, number), until_seen(many.conn, number)) for number in range(TIMES)
        ]
        time.sleep(10)
        idle = share_of_a_processor(many.conn, many.pid)
    of_few, of_many = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(many / few for few, many in pairs)
    print(
        f"{TABLES} idle stream tables over {SOURCES} sources, of one processor  {idle:6.3f}   (at most 0.05)"
    )
    print(f"{CHANGED} changed of {CHANGED}: {of_few:.2f} s, of {TABLES}: {of_many:.2f} s")
    print(f"median of the {TIMES} ratios  {ratio:6.2f}   (about 1)")


@contextmanager
def service_of(tables: int) -> Iterator[Bench]:
    """Yield a service that keeps so many stream tables, each of them filled."""
    with millstream.embedded() as server, psycopg.connect(server.dsn, autocommit=True) as conn:
        create_sources(conn)
        create_stream_tables(server.dsn, tables)
        with serving(server.dsn) as pid:
            wait(
                conn,
                "SELECT count(*) = 0 FROM millstream.stream_tables WHERE frontier IS NULL",
                3600,
            )
            yield Bench(conn, pid)


def create_sources(conn: Connection) -> None:
    for number in range(SOURCES):
        conn.execute(f"CREATE TABLE s{number} (id int PRIMARY KEY, k int, v int)".encode())
        conn.execute(
            f"INSERT INTO s{number} SELECT i, i % 10, i FROM generate_series(1, 100) AS i".encode()
        )


def create_stream_tables(dsn: str, tables: int) -> None:
    """Create the stream tables: the first ten have sources of their own."""
    with millstream.connect(dsn) as ms:
        for number in range(tables):
            source = number if number < CHANGED else CHANGED + number % (SOURCES - CHANGED)
            query = f"SELECT k, sum(v) + {number} AS v FROM s{source} GROUP BY k"
            ms.create_stream_table(
                f"t{number}", query, schedule="200ms", cdc_mode="trigger", initialize=False
            )


@contextmanager
def serving(dsn: str) -> Iterator[int]:
    """A service; its process id."""
    command = [sys.executable, "-m", "millstream", "run", "--quiet", "--dsn", dsn]
    # Verification is apart from this: it has a budget of its own.
    process = subprocess.Popen(command, env={**os.environ, "MILLSTREAM_VERIFY_BUDGET": "0"})
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def until_seen(conn: Connection, number: int) -> float:
    """Change ten sources in one transaction; return the seconds until ten stream tables show it."""
    with conn.transaction():
        for source in range(CHANGED):
            conn.execute(f"UPDATE s{source} SET v = v + 1 WHERE id = {1 + number}".encode())
    began = time.perf_counter()
    right = " AND ".join(
        f"(SELECT sum(v) FROM t{source}) = (SELECT sum(v) + 10 * {source} FROM s{source})"
        for source in range(CHANGED)
    )
    wait(conn, f"SELECT {right}", 120)
    return time.perf_counter() - began


def share_of_a_processor(conn: Connection, pid: int) -> float:
    """The share of one processor that the service and all that works for it uses."""
    backends = conn.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'millstream run%'"
    )
    pids = [pid, *children(pid), *(int(str(backend)) for (backend,) in backends)]
    before, began = sum(map(processor_seconds, pids)), time.perf_counter()
    time.sleep(SECONDS)
    return (sum(map(processor_seconds, pids)) - before) / (time.perf_counter() - began)


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICKS


def wait(conn: Connection, query: str, seconds: float) -> None:
    """Until a query answers true."""
    deadline = time.monotonic() + seconds
    while conn.execute(query.encode()).fetchone() != (True,):
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:g} s: {query}")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
