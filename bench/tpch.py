"""TPC-H: what a refresh costs, beside what PostgreSQL and Spark need to compute the query anew.

    python bench/tpch.py 0.1        or BENCH_TPCH_SCALE=0.1; the scale is 1 if nothing is said
    python bench/tpch.py 1 0.001    only 0.1 % changed, or BENCH_TPCH_SHARES=0.001

RF1, RF2 and random changes of all tables, 0.01 %, 0.1 % and 1 % of each; then every query is
brought up to date three ways, one after the other, over the same rows:

    refresh       millstream, DIFFERENTIAL
    PostgreSQL    REFRESH MATERIALIZED VIEW
    Spark         millstream, FULL: the whole query on Spark, the difference applied

Times are wall-clock, of one run each, after cycles of the same share that warm. The tables are
printed as Markdown. At the end every stream table is compared with its query.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import millstream
from millstream.errors import QueryError
from millstream.postgres.connection import Connection, connect
from millstream.testing.tpch.changes import TpchChanges
from millstream.testing.tpch.load import load
from millstream.testing.tpch.queries import queries

SCALE = float(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("BENCH_TPCH_SCALE", "1"))
SHARES = tuple(
    float(share)
    for share in (sys.argv[2:] or os.environ.get("BENCH_TPCH_SHARES", "0.0001 0.001 0.01").split())
)
# Cycles of each share before it is timed: as a service that runs with such changes, not as one that
# has just started.
WARMING = 3
MEMORY = {"max_wal_size": "8GB", "shared_buffers": "1GB", "work_mem": "64MB"}

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """One query after one change; times in milliseconds."""

    name: str
    postgres: float
    refused: str = ""
    action: str = ""
    blocks: int = 0
    rows_read: int = 0
    refresh: float = 0.0
    spark: float = 0.0

    def __str__(self) -> str:
        if self.refused:
            return f"| {self.name} | | | | | {self.postgres:,.0f} | | | refused: {self.refused} |"
        faster = f"{self.postgres / self.refresh:.2f} | {self.spark / self.refresh:.2f}"
        numbers = f"{self.blocks} | {self.rows_read:,} | {self.refresh:,.0f} | {self.spark:,.0f} | {self.postgres:,.0f}"
        return f"| {self.name} | {numbers} | {faster} | {self.action} |"


HEAD = """| query | blocks | rows read | refresh ms | Spark ms | PostgreSQL ms | PostgreSQL / ours | Spark / ours | |
|---|--:|--:|--:|--:|--:|--:|--:|---|"""


@dataclass
class Bench:
    """The tables, the stream tables and the materialized views over them."""

    ms: millstream.Millstream
    conn: Connection
    changes: TpchChanges
    refused: dict[str, str]

    def cycle(self, share: float) -> Iterator[Line]:
        self.changes.share = share
        self.changes.cycle()
        return map(self.line, queries(SCALE))

    def warm(self, share: float) -> None:
        self.changes.share = share
        self.changes.cycle()
        for name in queries(SCALE):
            if name not in self.refused:
                self.ms.refresh(name)

    def line(self, name: str) -> Line:
        if name in self.refused:
            return Line(name, self.postgres(name), self.refused[name])
        refresh, report = timed(lambda: self.ms.refresh(name))
        spark, full = timed(lambda: self.ms.refresh(name, full=True))
        assert (full.action, full.rows_inserted + full.rows_updated + full.rows_deleted) == (
            "FULL",
            0,
        ), name
        blocks = len(self.ms.explain(name).planned.blocks)
        return Line(
            name, self.postgres(name), "", report.action, blocks, report.rows_read, refresh, spark
        )

    def postgres(self, name: str) -> float:
        return timed(
            lambda: self.conn.execute(f"REFRESH MATERIALIZED VIEW postgres_{name}".encode())
        )[0]


def main() -> None:
    with millstream.embedded(settings=MEMORY) as server, connect(server.dsn) as conn:
        sizes = load(conn, SCALE)
        print(
            f"TPC-H, scale {SCALE:g}: {', '.join(f'{rows:,} {table}' for table, rows in sizes.items())}"
        )
        with millstream.connect(server.dsn) as ms:
            bench = Bench(ms, conn, TpchChanges(conn), refused=made(ms, conn))
            for share in SHARES:
                for _ in range(WARMING):
                    bench.warm(share)
                show(share, bench.cycle(share), bench.changes)
            wrong = [
                name
                for name in queries(SCALE)
                if name not in bench.refused and not ms.verify(name).ok
            ]
            assert not wrong, wrong


def made(ms: millstream.Millstream, conn: Connection) -> dict[str, str]:
    """Make every view both ways; what was refused, and why."""
    refused = {}
    for name, query in queries(SCALE).items():
        conn.execute(f"CREATE MATERIALIZED VIEW postgres_{name} AS {query}".encode())
        try:
            ms.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
        except QueryError as error:
            refused[name] = error.message.removesuffix(" is not supported in a stream table")
    return refused


def show(share: float, measured: Iterator[Line], changes: TpchChanges) -> None:
    """The table of one share of change, line by line as it is measured, and its sum."""
    print(
        f"\n### {share:.2%} changed: {changes.log['rf2']:,} orders turned over, as much of each table at random\n"
    )
    print(HEAD)
    lines = list[Line]()
    for line in measured:
        print(line, flush=True)
        lines.append(line)
    kept = [line for line in lines if not line.refused]
    slow = [line for line in kept if line.postgres > 1000]
    over_spark = sum(line.refresh < line.spark for line in kept)
    over_postgres = sum(line.refresh < line.postgres for line in slow)
    print(
        f"\n{len(kept)} of {len(lines)} are kept; faster than Spark: {over_spark} of {len(kept)};",
        end=" ",
    )
    print(f"faster than PostgreSQL where that takes more than 1 s: {over_postgres} of {len(slow)}.")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """How long it took, in milliseconds, and what came of it."""
    started = time.perf_counter()
    result = work()
    return (time.perf_counter() - started) * 1000, result


if __name__ == "__main__":
    main()
