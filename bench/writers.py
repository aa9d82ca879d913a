"""What capture costs writers: throughput with it, divided by throughput without it, all in one run.

    none      no capture
    triggers  change buffers filled in the writers' own transactions
    log       REPLICA IDENTITY FULL, read and stored by a process on this very machine
    later     the same, read when the writers are done: what is left for them to pay

pgbench writes, with 1, 10 and 50 sessions, to a narrow table (3 columns) and a wide one (30):
inserts and updates of single rows, and inserts of 10,000 rows by one statement. BENCH_SECONDS says
how long each takes.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import millstream
from millstream.bundled.server import Server
from millstream.capture.transition import cutover
from millstream.capture.trigger import triggers as trigger
from millstream.capture.trigger.inventory import triggers
from millstream.capture.wal import slot
from millstream.capture.wal.pipeline import Pipeline
from millstream.catalog import sources
from millstream.catalog.installation import install
from millstream.postgres import relations
from millstream.postgres.connection import Connection, session

SECONDS = float(os.environ.get("BENCH_SECONDS", "4"))
ROWS = 20_000
TABLES = {"narrow": 1, "wide": 28}
WAYS = ("none", "triggers", "log", "later")
# By what is written: the script, and with how many sessions.
LOADS = {
    "insert 1 row": ("INSERT INTO {table} SELECT :id, :v{more}", (1, 10, 50)),
    "update 1 row": ("UPDATE {table} SET v = :v WHERE id = :old", (1, 10, 50)),
    "insert 10,000 rows": (
        "INSERT INTO {table} SELECT g, :v{more} FROM generate_series(1, 10000) AS g",
        (1,),
    ),
}


def main() -> None:
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    with millstream.embedded() as server, session(server.dsn) as conn:
        install.install(conn)
        for table, width in TABLES.items():
            for way in WAYS:
                with captured(conn, server, table, width, way):
                    for load, (_, sessions) in LOADS.items():
                        for count in sessions:
                            rate = written(server, table, width, load, count)
                            found.setdefault((table, load, count), {})[way] = rate
    print(
        f"{'table':8} {'load':20} {'sessions':>8} {'none/s':>10}   "
        + "   ".join(f"{way:>8}" for way in WAYS[1:])
    )
    for (table, load, count), rates in found.items():
        ratios = "   ".join(f"{rates[way] / rates['none']:8.2f}" for way in WAYS[1:])
        print(f"{table:8} {load:20} {count:8} {rates['none']:10,.0f}   {ratios}")


@contextmanager
def captured(conn: Connection, server: Server, table: str, width: int, way: str) -> Iterator[None]:
    """The table, made anew, and captured this way."""
    columns = "".join(f", c{number} text" for number in range(width))
    conn.execute(f"CREATE TABLE public.{table} (id int, v int{columns})".encode())
    conn.execute(
        f"INSERT INTO public.{table} (id, v) SELECT g, 0 FROM generate_series(1, {ROWS}) AS g".encode()
    )
    conn.execute(f"CREATE INDEX ON public.{table} (id); ANALYZE public.{table}".encode())
    oid = conn.execute("SELECT %s::regclass::oid", (f"public.{table}",)).fetchall()[0][0]
    pipeline: Pipeline | None = None
    if way != "none":
        source = relations.table(conn, oid)
        trigger.install(conn, source, [column.name for column in source.columns])
    if way in ("log", "later"):
        cutover.begin(conn, oid)
        cutover.publish(conn, server.dsn, oid)
        cutover.switch_to_wal(conn, oid)
        cutover.drop_triggers(conn, oid)
        assert not triggers(conn, [oid])[oid]
        if way == "log":
            pipeline = Pipeline(server.dsn, slot.name_of(conn))
            pipeline.start()
    try:
        yield
    finally:
        if pipeline is not None:
            pipeline.stop()
        if way in ("log", "later"):
            slot.drop(conn, slot.name_of(conn))
        if sources.get(conn, oid) is not None:
            trigger.remove(conn, oid)
        conn.execute(f"DROP TABLE public.{table}; CHECKPOINT".encode())


def written(server: Server, table: str, width: int, load: str, count: int) -> float:
    """Transactions per second."""
    more = "".join(f", 'some text {number}'" for number in range(width))
    text = LOADS[load][0].format(table=f"public.{table}", more=more)
    script = f"\\set id random(1, 1000000)\n\\set old random(1, {ROWS})\n\\set v random(1, 1000)\n{text};\n"
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        command = [
            str(Path(server.bindir) / "pgbench"), "--no-vacuum", "-M", "prepared", "-f", file.name, "-c", str(count),
            "-j", "1", "-T", f"{max(1, round(SECONDS))}", server.dsn,
        ]  # fmt: skip
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"tps = ([\d.]+)", told)
    assert match, told
    return float(match[1])


if __name__ == "__main__":
    main()
