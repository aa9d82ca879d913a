"""A process that cannot follow the log holds up what is captured from WAL, and nothing else."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from millstream.capture.transition.context import TransitionMemory
from millstream.catalog import sources
from millstream.client import Millstream
from millstream.errors import SpillFailed
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff
from millstream.testing.disk import files_of_at_most

pytestmark = pytest.mark.spark

LOGGED = "SELECT id, length(v) AS n FROM logged"
TRIGGERED = "SELECT id FROM triggered"


@pytest.fixture
def writer(
    ms: Millstream, writer: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> psycopg.Connection:
    """One source captured from WAL, which spills beyond 100 kB, and one by triggers."""
    writer.execute(
        "CREATE TABLE logged (id int PRIMARY KEY, v text); ALTER TABLE logged REPLICA IDENTITY FULL"
    )
    writer.execute("CREATE TABLE triggered (id int PRIMARY KEY)")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ms.app.follower._options = replace(ms.app.follower._options, budget=100_000)
    ms.create_stream_table("logged_st", LOGGED, schedule="continuous", refresh_mode="DIFFERENTIAL")
    ms.create_stream_table(
        "triggered_st", TRIGGERED, schedule="continuous", refresh_mode="DIFFERENTIAL"
    )
    deadline = time.monotonic() + 60
    while "WAL" not in {source.mode for source in sources.every(ms.app.conn)}:
        assert time.monotonic() < deadline, sources.every(ms.app.conn)
        ms.app.steps = TransitionMemory()
        ms.tick()
    ms.tick()
    return writer


def test_a_full_spill_disk_stops_only_capture_from_wal(
    ms: Millstream, writer: psycopg.Connection, tmp_path: Path
) -> None:
    """It was an OSError out of tick() and refresh(); stream tables captured by triggers stopped,
    too.
    """
    with files_of_at_most(200_000):
        writer.execute(
            "INSERT INTO logged SELECT g, repeat('x', 2000) FROM generate_series(1, 500) AS g"
        )
        for number in range(4):
            writer.execute("INSERT INTO triggered VALUES (%s)", (number,))
            ms.app.steps = TransitionMemory()
            end_backoff(ms.app.conn)
            assert {report.name: report.action for report in ms.tick()} == {
                "triggered_st": "DIFFERENTIAL"
            }
            oracle.check(ms.app.conn, TRIGGERED, "public.triggered_st")
        with pytest.raises(SpillFailed, match=str(tmp_path)):
            ms.refresh("logged_st")
        told = {one.name: one for one in ms.status()}["logged_st"]
        assert (told.status, told.consecutive_errors) == ("ACTIVE", 0)
        assert told.transient_errors >= 4
        assert [
            check.ok for check in ms.health() if check.name == "stream table public.logged_st"
        ] == [False]
    assert ms.refresh("logged_st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, LOGGED, "public.logged_st")
