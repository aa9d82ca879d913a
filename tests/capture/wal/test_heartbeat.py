"""The heartbeat of the slot: a message that must come back, and when the connection is given up."""

from __future__ import annotations

import time

import pytest

from millstream.capture.wal.health import Health
from millstream.capture.wal.heartbeat import SlotHeartbeat, barrier
from millstream.postgres.connection import Connection
from millstream.testing.waiting import wait_until

NOW, LONG_AGO = float("inf"), float("-inf")


def heartbeat(durable: int, *, sent_at: float, life_at: float) -> SlotHeartbeat:
    """A heartbeat whose last message is at position 10."""
    made = SlotHeartbeat("", Health(durable=durable, life_at=life_at), interval=1.0, timeout=1.0)
    made.position, made.sent_at = 10, sent_at
    return made


@pytest.mark.parametrize(
    ("durable", "sent_at", "life_at", "lost"),
    [
        (9, LONG_AGO, LONG_AGO, True),
        (10, LONG_AGO, LONG_AGO, False),
        (9, NOW, LONG_AGO, False),
        (9, LONG_AGO, NOW, False),
    ],
    ids=["nothing came back", "it came back", "just sent", "other signs of life"],
)
def test_the_connection_is_lost_if_neither_the_message_nor_anything_else_came_in_time(
    durable: int, sent_at: float, life_at: float, lost: bool
) -> None:
    assert heartbeat(durable, sent_at=sent_at, life_at=life_at).is_lost() is lost


def test_a_barrier_lies_behind_all_that_was_committed_before_it(conn: Connection) -> None:
    conn.execute("CREATE TABLE t ()")
    position = "SELECT (pg_current_wal_flush_lsn() - '0/0')::int8"
    before = conn.execute(position).fetchall()[0][0]
    first, second = barrier(conn), barrier(conn)
    assert before <= first < second <= conn.execute(position).fetchall()[0][0]


def test_the_next_message_is_sent_only_after_the_last_one_came_back(database: str) -> None:
    health = Health(life_at=time.monotonic())
    sender = SlotHeartbeat(database, health, interval=0.01, timeout=3600.0)
    sender.start()
    try:
        first = wait_until(lambda: sender.position, seconds=90)
        assert sender.position == first
        health.durable = first
        assert wait_until(lambda: sender.position > first, seconds=90)
    finally:
        sender.stop()
