"""Exact while sources move to the log and back under sixteen writers: each refresh equals
PostgreSQL at its own cut.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from millstream.capture.transition import transitions
from millstream.capture.transition.context import TransitionMemory
from millstream.catalog import sources
from millstream.client import Millstream
from millstream.postgres.connection import Connection
from millstream.testing import oracle
from millstream.testing.writers import SHORT, VIEWS, Writers

if TYPE_CHECKING:
    from tests.concurrency.conftest import Judge, RefreshOnTime

SECONDS = 12.0


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_every_refresh_is_exact_while_sources_move_to_wal_and_back(
    ms: Millstream, judge: Judge, conn: Connection, database: str, refresh_on_time: RefreshOnTime
) -> None:
    # Customers stay on triggers: the join meets both.
    conn.execute(
        "ALTER TABLE orders REPLICA IDENTITY FULL; ALTER TABLE visits REPLICA IDENTITY FULL"
    )
    for name, query in VIEWS.items():
        ms.create_stream_table(name, query, schedule="1s")
    seen = Counter[tuple[str, str]]()

    def moving(goal: str) -> Callable[[], bool]:
        """Take a step; is it over, with the sources there and some time gone?"""
        over = time.monotonic() + SECONDS

        def step() -> bool:
            ms.app.steps = TransitionMemory()
            transitions.advance(ms.app)
            modes = {source.name: source.mode for source in sources.every(ms.app.conn)}
            seen.update(modes.items())
            return time.monotonic() > over and modes["orders"] == modes["visits"] == goal

        return step

    with Writers(database, seed=4, count=16, truncate_every=6.0, paces=SHORT) as writers:
        refresh_on_time(10 * SECONDS, until=moving("WAL"))
        for name in VIEWS:
            ms.alter_stream_table(name, cdc_mode="trigger")
        refresh_on_time(10 * SECONDS, until=moving("TRIGGER"))
    ms.refresh_all()
    print(f"\n{judge}\n{dict(seen)}\n{dict(writers.done.most_common())}")

    assert not judge.wrong, "\n".join(map(str, judge.wrong))
    for name, query in VIEWS.items():
        oracle.check(conn, query, name)
    assert set(seen) >= {
        (name, mode)
        for name in ("orders", "visits")
        for mode in ("TRANSITIONING", "WAL", "TRIGGER")
    }
    assert ("customers", "WAL") not in seen
    # Nothing was lost, so nothing started anew but after a TRUNCATE.
    reasons = {reason for action, reason in judge.actions if action != "NO_DATA"}
    assert reasons <= {"INITIAL", "CHANGED", "SOURCE_TRUNCATED"}
