"""Exact under concurrency: every refresh equals PostgreSQL's answer at its own cut, whatever
writers do meanwhile.

MILLSTREAM_TEST_SECONDS says how long they work, a minute unless told; MILLSTREAM_TEST_SEED what
they do.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from millstream.client import Millstream
from millstream.postgres.connection import Connection
from millstream.testing import oracle
from millstream.testing.writers import STEPS, VIEWS, Writers

if TYPE_CHECKING:
    from tests.concurrency.conftest import Judge, RefreshOnTime

SECONDS = float(os.environ.get("MILLSTREAM_TEST_SECONDS", "60"))
SEED = int(os.environ.get("MILLSTREAM_TEST_SEED", "20"))

# What a run of some length must have met, besides every step.
EVENTS = (
    "committed",
    "rolled back",
    "rolled back to savepoint",
    "savepoint released",
    "commit prepared",
    "rollback prepared",
    "truncated",
)


@pytest.mark.spark
@pytest.mark.timeout(SECONDS + 300)
def test_every_refresh_is_exact_while_sixteen_writers_work(
    ms: Millstream, judge: Judge, conn: Connection, database: str, refresh_on_time: RefreshOnTime
) -> None:
    for name, query in VIEWS.items():
        ms.create_stream_table(name, query, schedule="1s")
    with Writers(database, seed=SEED, count=16, truncate_every=6.0) as writers:
        rounds = refresh_on_time(SECONDS)
    ms.refresh_all()
    print(f"\n{rounds} rounds in {SECONDS:g} s, {judge}\n{dict(writers.done.most_common())}")

    assert not judge.wrong, "\n".join(map(str, judge.wrong))
    for name, query in VIEWS.items():
        oracle.check(conn, query, name)
    assert not pending(conn), "every reader has consumed what the buffers held"
    _expect_differences(judge)
    if SECONDS >= 30:
        assert not [event for event in (*EVENTS, *STEPS) if not writers.done[event]]


def _expect_differences(judge: Judge) -> None:
    """Most refreshes followed the change; a table was read anew at its start and after a TRUNCATE
    only.
    """
    working = {key: count for key, count in judge.actions.items() if key[0] != "NO_DATA"}
    assert set(working) <= {
        ("FULL", "INITIAL"),
        ("DIFFERENTIAL", "CHANGED"),
        ("REINITIALIZE", "SOURCE_TRUNCATED"),
    }
    assert working["DIFFERENTIAL", "CHANGED"] > sum(working.values()) / 2


def pending(conn: Connection) -> int:
    """How many rows all buffers hold."""
    names = conn.execute("SELECT relid FROM millstream.sources").fetchall()
    counts = [
        conn.execute(
            f"SELECT count(*) FROM millstream_changes.changes_{relid}".encode()
        ).fetchall()[0][0]
        for (relid,) in names
    ]
    return sum(counts)
