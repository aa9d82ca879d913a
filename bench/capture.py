"""How fast the log reaches the change buffers.

    rows per second, commit to durable buffer, of a backlog of single-row and of many-row transactions
    -----------------------------------------------------------------------------------------------    at least 0.6
    rows per second of pg_recvlogical to /dev/null, of the same backlog

Eight columns: int8, int4, numeric, float8, text, timestamptz, boolean, jsonb.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psycopg

import millstream
from millstream.capture.trigger import triggers as trigger
from millstream.capture.trigger.inventory import triggers
from millstream.capture.wal import slot
from millstream.capture.wal.heartbeat import barrier
from millstream.capture.wal.pipeline import Pipeline
from millstream.catalog.installation import install
from millstream.postgres import relations
from millstream.postgres.connection import Connection, session
from millstream.postgres.relations import Name

ROWS = int(os.environ.get("BENCH_ROWS", "300000"))
TIMES = int(os.environ.get("BENCH_TIMES", "3"))

TABLE = (
    "CREATE TABLE public.measured (id int8 PRIMARY KEY, kind int4, amount numeric, share float8, note text,"
    " at timestamptz, done boolean, facts jsonb)"
)
FILL = (
    "INSERT INTO public.measured SELECT g, g %% 100, g / 100.0, g / 3.0, 'note ' || md5(g::text), now(), g %% 2 = 0,"
    " jsonb_build_object('a', g, 'b', 'x') FROM generate_series(%s::int8, %s::int8) AS g"
)


def main() -> None:
    with millstream.embedded() as server, session(server.dsn) as conn:
        install.install(conn)
        conn.execute(TABLE)
        buffer = capture(conn)
        for size in (1000, 10):
            runs = [one_run(conn, server.dsn, server.bindir, buffer, size) for _ in range(TIMES)]
            ours, floor = (sorted(each)[len(each) // 2] for each in zip(*runs, strict=True))
            print(
                f"transactions of {size:5} rows   pg_recvlogical {floor:9,.0f} rows/s   millstream {ours:9,.0f} rows/s"
            )
            print(f"ratio {ours / floor:.2f} (at least 0.6)")


def capture(conn: Connection) -> str:
    """Capture the table from the log; returns its buffer."""
    oid = conn.execute("SELECT 'public.measured'::regclass::oid").fetchall()[0][0]
    table = relations.table(conn, oid)
    trigger.install(conn, table, [column.name for column in table.columns])
    for found in triggers(conn, [oid])[oid]:
        conn.execute(
            psycopg.sql.SQL("DROP TRIGGER {} ON public.measured").format(
                psycopg.sql.Identifier(found.name)
            )
        )
    conn.execute("ALTER TABLE public.measured REPLICA IDENTITY FULL")
    conn.execute("UPDATE millstream.sources SET cdc_mode = 'WAL'")
    slot.publish(conn, [Name(oid, "public", "measured")])
    return f"millstream_changes.changes_{oid}"


def one_run(
    conn: Connection, dsn: str, bindir: Path, buffer: str, size: int
) -> tuple[float, float]:
    """The same backlog by both ways, from slots made at the same place."""
    conn.execute("TRUNCATE public.measured")
    conn.execute(f"TRUNCATE {buffer}".encode())
    made = slot.create(conn, dsn)
    conn.execute("SELECT pg_create_logical_replication_slot('floor', 'pgoutput')")
    conn.execute("SET synchronous_commit = off")
    for start in range(0, ROWS, size):
        conn.execute(FILL, (start, start + size - 1))
    conn.execute("SET synchronous_commit = on")
    end = barrier(conn)
    floor = by_recvlogical(dsn, bindir, made.publication, end)
    ours = by_pipeline(conn, dsn, made.name, buffer, end)
    conn.execute("SELECT pg_drop_replication_slot('floor')")
    drop_when_free(conn, made.name)
    return ROWS / ours, ROWS / floor


def by_pipeline(conn: Connection, dsn: str, name: str, buffer: str, end: int) -> float:
    pipeline = Pipeline(dsn, name)
    began = time.perf_counter()
    pipeline.start()
    assert pipeline.wait(end, 600)
    took = time.perf_counter() - began
    pipeline.stop()
    assert conn.execute(f"SELECT count(*) FROM {buffer}".encode()).fetchall() == [(ROWS,)]
    return took


def by_recvlogical(dsn: str, bindir: Path, publication: str, end: int) -> float:
    command = [
        str(bindir / "pg_recvlogical"), "-d", dsn, "--slot", "floor", "--start", "-f", "/dev/null", "--no-loop",
        "-o", "proto_version=1", "-o", f"publication_names={publication}",
        "--endpos", f"{end >> 32:X}/{end & 0xFFFFFFFF:X}",
    ]  # fmt: skip
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


def drop_when_free(conn: Connection, name: str) -> None:
    while conn.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchall():
        time.sleep(0.05)
    conn.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    conn.execute("DELETE FROM millstream.slots")


if __name__ == "__main__":
    main()
