"""The store: what is sent again is left out, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.wal.buffer_writer import BATCH_ROWS, _BatchWriting, parts, widened
from millstream.capture.wal.feedback import Feedback
from millstream.capture.wal.messages.rows import Offsets
from millstream.capture.wal.messages.spill import SpilledChanges
from millstream.capture.wal.messages.transactions import Transaction
from millstream.capture.wal.pipeline import Options
from millstream.catalog.installation import install
from millstream.catalog.slots import WHOLE
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log, Logged


@given(st.integers(3, 2**50), st.integers(-(2**31) + 1, 2**31 - 1))
def test_a_transaction_id_is_widened_to_the_nearest(xid: int, distance: int) -> None:
    near = xid + distance
    if near > 0:
        assert widened(xid & 0xFFFFFFFF, near) == xid


def test_a_transaction_comes_in_parts_of_the_size_of_a_batch() -> None:
    changes = SpilledChanges([(0, {})], [b"x"] * (2 * BATCH_ROWS + 1))
    found = list(parts(Transaction(1, 10, 20, changes)))
    assert [(len(part.piece.messages), part.is_last) for part in found] == [
        (BATCH_ROWS, False),
        (BATCH_ROWS, False),
        (1, True),
    ]
    assert [part.is_last for part in parts(Transaction(1, 10, 20, SpilledChanges([(0, {})])))] == [
        True
    ]


def _again(conn: Connection, log: Log, watermark: str = "") -> Logged:
    """Store everything, then forget that it was: all of it is sent again."""
    conn.execute("CREATE TABLE t (id int, v text)")
    t = log.capture("t")
    for number in range(5):
        conn.execute("INSERT INTO t VALUES (%s, 'small')", (number,))
    conn.execute(
        f"INSERT INTO t SELECT g, 'large' FROM generate_series(1, {BATCH_ROWS + 5000}) AS g".encode()
    )
    log.start(Options(heartbeat_interval=60.0))
    log.settle()
    log.stop()
    conn.execute("UPDATE millstream.slots SET cursor = created_lsn")
    if watermark:
        conn.execute(f"UPDATE millstream.watermarks SET {watermark}".encode())
    conn.execute("INSERT INTO t VALUES (-1, 'new')")
    log.start()
    return t


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is not told what is durable."""
    monkeypatch.setattr(Feedback, "advance", lambda self, position: None)


@pytest.mark.usefixtures("deaf")
def test_what_is_sent_again_is_left_out(conn: Connection, log: Log) -> None:
    t = _again(conn, log)
    assert log.check(t)[0].images == 5 + BATCH_ROWS + 5000 + 1
    mark = conn.execute("SELECT ordinal FROM millstream.watermarks").fetchall()
    assert mark == [(WHOLE,)]


@pytest.mark.usefixtures("deaf")
def test_of_a_transaction_stored_in_part_the_rest_is_stored(conn: Connection, log: Log) -> None:
    t = _again(conn, log, "ordinal = 7000")
    log.settle()
    # All but the first 7000 changes of the last transaction that had been stored come a second
    # time.
    count = conn.execute(
        f"SELECT count(*) FROM millstream_changes.changes_{t.source.relid}".encode()
    ).fetchall()[0][0]
    assert count == 5 + BATCH_ROWS + 5000 + 1 + (BATCH_ROWS + 5000 - 7000)


@pytest.mark.usefixtures("deaf")
def test_the_control_without_watermarks_is_caught(
    conn: Connection, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of_them(self: _BatchWriting, source: int, numbers: Offsets) -> Offsets:
        return np.arange(len(numbers))

    monkeypatch.setattr(_BatchWriting, "_fresh", all_of_them)
    t = _again(conn, log)
    with pytest.raises(AssertionError, match="are too many"):
        log.check(t)


def test_uninstalling_drops_the_slot_and_the_publication_under_a_running_pipeline(
    conn: Connection, log: Log
) -> None:
    conn.execute("CREATE TABLE t (id int)")
    log.capture("t")
    pipeline = log.start()
    log.settle()
    install.uninstall(conn)
    assert (
        conn.execute(
            "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        ).fetchall()
        == []
    )
    assert conn.execute("SELECT 1 FROM pg_publication").fetchall() == []
    log.pipeline = None
    with pytest.raises(Exception, match="millstream"):
        pipeline.wait(1 << 62, 20)
