"""Under concurrent writers every cut accounts for every change, and so does the whole.

Writers run transactions of any length with savepoints, rollbacks, two-phase commits, COPY and
changed keys. Cuts are taken of three tables at one snapshot; what the log has brought by a barrier
after the snapshot, and the snapshot sees, must be the difference. The control takes all that has
been stored by then, as a position in the log would, and is caught: a transaction is sent when its
commit is on disk, and seen a moment later.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from millstream.capture.wal.pipeline import Options
from millstream.postgres.connection import Connection
from millstream.testing.writers import Writers, make_tables

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log

SECONDS = 6.0
TABLES = ("customers", "orders", "visits")


@pytest.mark.parametrize("in_chunks", [False, True], ids=["whole", "in chunks"])
def test_every_cut_accounts_for_every_change(
    conn: Connection, log: Log, database: str, in_chunks: bool
) -> None:
    make_tables(conn)
    watched = [log.capture(name) for name in TABLES]
    log.start(Options(in_chunks=in_chunks, linger=0.01))
    cuts = images = 0
    with Writers(database, seed=5, count=8, truncate_every=0) as writers:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            images += sum(taken.images for taken in log.check(*watched))
            cuts += 1
            if cuts % 10 == 0:
                conn.execute(
                    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
                )
    _end_prepared(conn)
    log.check(*watched)
    print(cuts, "cuts,", images, "images,", dict(writers.done))
    assert cuts > 10
    assert images > 500


def test_the_control_that_takes_all_that_is_stored_is_caught(
    conn: Connection, log: Log, database: str
) -> None:
    make_tables(conn)
    orders = log.capture("orders")
    log.start(Options(linger=0.0))
    columns = ", ".join(f"c{column.attnum}::text" for column in orders.source.columns)
    take = f"DELETE FROM millstream_changes.changes_{orders.source.relid} RETURNING action, '', {columns}".encode()

    def is_wrong() -> bool:
        _, content = orders.cut()
        log.settle()
        taken: dict[str, Counter[tuple[str | None, ...]]] = {"I": Counter(), "D": Counter()}
        for action, *image in conn.execute(take):
            taken[action][tuple(image)] += 1
        former, orders.content = orders.content, content
        return former + taken["I"] != content + taken["D"]

    with Writers(database, seed=6, count=8, truncate_every=0):
        deadline = time.monotonic() + 20
        while not is_wrong():
            assert time.monotonic() < deadline, "the control was not caught"
    _end_prepared(conn)


def _end_prepared(conn: Connection) -> None:
    """What the writers left prepared."""
    for (gid,) in conn.execute(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    ).fetchall():
        conn.execute(f"ROLLBACK PREPARED '{gid}'".encode())
