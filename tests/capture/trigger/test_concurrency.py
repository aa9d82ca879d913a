"""Under concurrent writers every cut accounts for every change, while the buffer is pruned all the
time.

Writers run transactions of random length with savepoints, rollbacks, two-phase commits and updates
of keys. A reader takes cut after cut; its persisted frontier moves with it, and a pruner removes
behind it. At each cut the old content plus the slice must be the new content. The control prunes by
xmax alone, which forgets transactions that were open at the cut, and must be caught.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from millstream.capture.buffer.prune import prune
from millstream.catalog import sources, stream_tables
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.conftest import Watch

SECONDS = 6.0
WRITERS = 8

TABLES = """
    CREATE TABLE orders (id int, region int, amount numeric) PARTITION BY LIST (region);
    CREATE TABLE orders_0 PARTITION OF orders FOR VALUES IN (0);
    CREATE TABLE orders_1 PARTITION OF orders FOR VALUES IN (1, 2);
    INSERT INTO orders SELECT g, g % 3, g FROM generate_series(1, 300) AS g;
"""

STATEMENTS = [
    "INSERT INTO orders VALUES ({id}, {id} % 3, 1)",
    "INSERT INTO orders SELECT {id} + g, g % 3, g FROM generate_series(1, 5) AS g",
    "UPDATE orders SET amount = amount + 1 WHERE id = {id}",
    "UPDATE orders SET id = id + 1 WHERE id = {id}",
    "UPDATE orders SET region = (region + 1) % 3 WHERE id BETWEEN {id} AND {id} + 2",
    "UPDATE orders_1 SET amount = 0 WHERE id = {id}",
    "DELETE FROM orders WHERE id = {id}",
    "DELETE FROM orders_0 WHERE id = {id}",
]


def test_every_cut_accounts_for_every_change(
    conn: Connection, another: Callable[[], Connection], watch: Watch
) -> None:
    checks = _run(conn, another, watch, prune)
    assert checks > 20


def test_the_control_that_forgets_open_transactions_is_caught(
    conn: Connection, another: Callable[[], Connection], watch: Watch
) -> None:
    def careless(pruner: Connection, relids: list[int]) -> None:
        frontier = sources.consumers(pruner, relids[0])[0]
        assert frontier is not None
        pruner.execute(
            f"DELETE FROM millstream_changes.changes_{relids[0]} WHERE xid < '{frontier.xmax}'"
        )

    with pytest.raises(AssertionError):
        _run(conn, another, watch, careless)


def _run(
    conn: Connection,
    another: Callable[[], Connection],
    watch: Watch,
    pruned: Callable[[Connection, list[int]], object],
) -> int:
    """Cut after cut for some seconds; return how many."""
    conn.execute(TABLES)
    orders = watch("orders")
    table = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name="s", query="", canonical_query="", schedule="1s"
        ),
    )
    sources.add_dependency(conn, table.id, orders.source.relid, ["id", "region", "amount"])
    stop = threading.Event()
    tasks = [
        threading.Thread(target=_write, args=(another(), seed, stop)) for seed in range(WRITERS)
    ]
    for task in tasks:
        task.start()
    checks = changes = 0
    try:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            changes += orders.check().images
            to = stream_tables.Advance(str(orders.frontier), datetime.now(UTC))
            stream_tables.advance(conn, [table.id], to)
            pruned(conn, [orders.source.relid])
            checks += 1
    finally:
        stop.set()
        for task in tasks:
            task.join()
    orders.check()
    assert changes > 100
    return checks


def _write(writer: Connection, seed: int, stop: threading.Event) -> None:
    chance = random.Random(seed)
    number = 0
    while not stop.is_set():
        number += 1
        writer.execute("BEGIN")
        for _ in range(chance.randrange(1, 6)):
            _one(writer, chance)
            time.sleep(chance.choice([0, 0, 0.001, 0.02]))
        _end(writer, chance, f"{seed} {number}")


def _one(writer: Connection, chance: random.Random) -> None:
    """One statement, in a savepoint that is sometimes rolled back; others may hold the row, so do
    not wait long.
    """
    writer.execute("SAVEPOINT s")
    try:
        writer.execute("SET LOCAL lock_timeout = '20ms'")
        writer.execute(chance.choice(STATEMENTS).format(id=chance.randrange(1, 320)))
    except Exception:
        writer.execute("ROLLBACK TO SAVEPOINT s")
        return
    writer.execute("ROLLBACK TO SAVEPOINT s" if chance.random() < 0.15 else "RELEASE SAVEPOINT s")


def _end(writer: Connection, chance: random.Random, gid: str) -> None:
    roll = chance.random()
    if roll < 0.7:
        writer.execute("COMMIT")
    elif roll < 0.85:
        writer.execute("ROLLBACK")
    else:
        gid = f"{writer.info.dbname} {gid}"
        writer.execute(f"PREPARE TRANSACTION '{gid}'")
        time.sleep(chance.choice([0, 0.05]))
        writer.execute(f"{'COMMIT' if chance.random() < 0.8 else 'ROLLBACK'} PREPARED '{gid}'")
