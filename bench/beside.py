"""This tree beside another one, in turns: a small refresh, and planning the queries of TPC-H.

    python bench/beside.py ../other/.venv/bin/python

The argument is the Python of another checked out tree. Each tree works in a process of its own,
with an embedded PostgreSQL and a Spark of its own; one waits while the other works, so that what
else the machine does slows both alike. Printed are the medians, and the median of the ratios
this / other, pair by pair.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import psycopg.conninfo

import millstream
from shop import QUERY, change, fill

ORDERS = int(os.environ.get("BENCH_ORDERS", "200000"))
TURNS = int(os.environ.get("BENCH_TIMES", "40"))
PLANNINGS = 5


def main(other: str) -> None:
    trees = [Worker(sys.executable), Worker(other)]
    for tree in trees:
        tree.ask("prepare", tpch_as_json())
    compare("refresh of 10 changes", trees, TURNS, lambda tree: tree.ask("refresh"))
    compare("planning TPC-H, CPU", trees, PLANNINGS, lambda tree: tree.ask("plan"))
    for tree in trees:
        tree.process.stdin.close()
        tree.process.wait()


def compare(what: str, trees: list[Worker], turns: int, measure: Callable[[Worker], float]) -> None:
    """Measure both trees in turns, each first in every other turn; print medians and ratio."""
    taken: dict[Worker, list[float]] = {tree: [] for tree in trees}
    for turn in range(turns):
        for tree in trees if turn % 2 else reversed(trees):
            taken[tree].append(measure(tree))
    ours, theirs = (taken[tree] for tree in trees)
    ratio = statistics.median(one / two for one, two in zip(ours, theirs, strict=True))
    medians = f"{statistics.median(ours):8.1f} ms {statistics.median(theirs):8.1f} ms"
    print(f"{what:24} {medians}   ratio {ratio:.2f}", flush=True)


class Worker:
    """A process that runs one tree; it answers each line of JSON with a number of milliseconds."""

    def __init__(self, python: str) -> None:
        command = [python, str(Path(__file__)), "--worker"]
        self.process: Any = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *request: object) -> float:
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("the other process has ended")
        return float(answer)


def tpch_as_json() -> dict[str, object]:
    """The statements that make the tables of TPC-H, and its queries."""
    from millstream.testing.tpch.load import SQL
    from millstream.testing.tpch.queries import queries

    tables = [SQL[step] for step in ("tables", "keys", "indexes", "revenue")]
    return {"tables": [str(statement) for statement in tables], "queries": queries(1)}


def work() -> None:
    """Answer requests. Only names that both trees have are used here."""
    answers, sys.stdout = sys.stdout, sys.stderr
    with millstream.embedded() as server:
        tree = Tree(server.dsn)
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            print(getattr(tree, name)(*arguments), file=answers, flush=True)


class Tree:
    """The work that is measured: refreshes in one database, planning in another."""

    def __init__(self, dsn: str) -> None:
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.conn.execute("CREATE DATABASE tpch")
        self.shop = millstream.connect(dsn)
        self.tpch_dsn = psycopg.conninfo.make_conninfo(dsn, dbname="tpch")
        self.tpch = millstream.connect(self.tpch_dsn)
        self.names: list[str] = []
        self.seeds = itertools.count(1)

    def prepare(self, tpch: dict[str, Any]) -> float:
        """Fill the shop, create the stream tables over it and over TPC-H, and warm up."""
        fill(self.conn, ORDERS, 50_000)
        self.shop.create_stream_table("totals", QUERY)
        with psycopg.connect(self.tpch_dsn, autocommit=True) as conn:
            for statement in tpch["tables"]:
                conn.execute(statement.encode())
        for name, query in tpch["queries"].items():
            self.tpch.create_stream_table(name, query)
            self.names.append(name)
        return sum(self.refresh() for _ in range(20)) + self.plan()

    def refresh(self) -> float:
        """Milliseconds of a refresh with ten changes."""
        change(self.conn, next(self.seeds))
        started = time.perf_counter()
        report = self.shop.refresh("totals")
        assert report.action == "DIFFERENTIAL", report.action
        return (time.perf_counter() - started) * 1000

    def plan(self) -> float:
        """Milliseconds of processor time that planning all queries takes."""
        app = self.tpch.app
        started = time.process_time()
        for name in self.names:
            table = app.named(name)
            app.forget(table.id)
            app.plan(table)
        return (time.process_time() - started) * 1000


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        work()
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        print(__doc__)
