"""The pipeline: what is committed is in the buffers, once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.store.connection import Connection

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log


def test_inserts_updates_and_deletes_are_captured(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    t = log.capture("t")
    log.start()
    conn.execute("INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 5) AS g")
    conn.execute("UPDATE t SET v = 'changed' WHERE id < 3")
    conn.execute("DELETE FROM t WHERE id = 5")
    (taken,) = log.check(t)
    assert taken.images == 5 + 4 + 1
    began = time.monotonic()
    log.stop()
    assert time.monotonic() - began < 2
