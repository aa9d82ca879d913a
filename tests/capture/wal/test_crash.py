"""The process killed at each step of the pipeline, again and again: every change is in the buffer
once.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.observe.failpoint import LOG_FAILPOINTS, VARIABLE
from millstream.postgres.connection import Connection
from millstream.testing import forks

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log, Logged

CHILD = Path(__file__).parent / "child.py"
# Two parts of a batch's size, and several times the child's memory: each large transaction spills
# more than once.
LARGE = 25_000


def _change(conn: Connection, number: int) -> None:
    """Some small transactions around a large one."""
    for _ in range(3):
        conn.execute("INSERT INTO t SELECT g, 'small' FROM generate_series(1, 3) AS g")
    with conn.transaction():
        conn.execute(
            f"INSERT INTO t SELECT g, 'large {number}' FROM generate_series(1, {LARGE}) AS g".encode()
        )
        conn.execute("DELETE FROM t WHERE id % 1000 = 0")
        with conn.transaction(force_rollback=True):
            conn.execute("DELETE FROM t")
        conn.execute("INSERT INTO u VALUES (1), (2)")
    conn.execute("UPDATE t SET v = 'changed' WHERE id = 5")


def _killed(log: Log, point: str, number: int, how: str = "whole") -> None:
    """Run a process until it is killed at a pass of a failpoint."""
    assert log.slot is not None
    environment = {**os.environ, VARIABLE: point, "MILLSTREAM_TEST_PASS": str(number)}
    ended = forks.run(CHILD, log.dsn, log.slot.name, how, environment=environment, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]


@pytest.fixture
def tables(conn: Connection, log: Log) -> tuple[Logged, Logged]:
    conn.execute("CREATE TABLE t (id int, v text); CREATE TABLE u (id int)")
    return log.capture("t"), log.capture("u")


@pytest.mark.usefixtures("little_decoding_memory")
@pytest.mark.parametrize("how", ["whole", "in chunks"])
@pytest.mark.parametrize("point", LOG_FAILPOINTS)
def test_killed_at_any_pass_of_this_point_nothing_is_lost_and_nothing_comes_twice(
    conn: Connection, log: Log, tables: tuple[Logged, Logged], point: str, how: str
) -> None:
    """In chunks, it is killed amid a transaction that has been sent in part; another takes up the
    log whole.
    """
    for number in (1, 2, 3):
        _change(conn, number)
        _killed(log, point, number, how)
    log.start()
    t, _ = log.check(*tables)
    # Each row inserted, 25 of each thousandth deleted, and what was changed.
    assert t.images > 3 * LARGE


def test_killed_at_every_point_in_turn_without_an_end_in_between(
    conn: Connection, log: Log, tables: tuple[Logged, Logged]
) -> None:
    _change(conn, 0)
    for point in (*LOG_FAILPOINTS, *LOG_FAILPOINTS):
        _killed(log, point, 1)
        conn.execute("INSERT INTO t VALUES (1, %s)", (point,))
        conn.execute(
            f"INSERT INTO t SELECT g, 'more' FROM generate_series(1, {LARGE}) AS g".encode()
        )
    log.start()
    log.check(*tables)
