"""The negative control: with a frontier by log position the very same comparison fails.

Each change is stamped with the log position at which its trigger fired, and a slice is what lies
between the positions of two cuts. A transaction that writes before a cut and commits after it lies
before the position and was not seen: its rows are lost for good. If these tests stopped finding
that, the others would prove nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from millstream.capture.buffer import slices
from millstream.client import Millstream
from millstream.errors import TargetDiffers
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection, connect
from millstream.refresh import cut
from millstream.testing.writers import VIEWS, Writers

if TYPE_CHECKING:
    from tests.concurrency.conftest import Judge, RefreshOnTime


class Positions:
    """The log position of each cut, and slices made from them."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}
        self.now = "0/0"
        self._take = cut._take

    def take(self, conn: Connection, *held: object) -> cut.Cut:
        """Take a cut, and note where the log stood."""
        made = self._take(conn, *held)  # type: ignore[arg-type]  # passed on as they come
        self.now = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()[0][0]
        self.at[str(made.snapshot)] = self.now
        return made

    def slice_condition(self, frontier: Snapshot) -> sql.Composed:
        positions = [sql.Literal(self.at[str(frontier)]), sql.Literal(self.now)]
        return sql.SQL("lsn > {}::pg_lsn AND lsn <= {}::pg_lsn").format(*positions)


@pytest.fixture
def by_position(
    ms: Millstream, judge: Judge, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The views are kept, with a frontier by log position."""
    positions = Positions()
    monkeypatch.setattr(cut, "_take", positions.take)
    monkeypatch.setattr(slices, "slice_condition", positions.slice_condition)
    for name, query in VIEWS.items():
        ms.create_stream_table(name, query, schedule="1s")
    for (relid,) in conn.execute("SELECT relid FROM millstream.sources").fetchall():
        stamp = f"ALTER TABLE millstream_changes.changes_{relid} ADD lsn pg_lsn DEFAULT pg_current_wal_insert_lsn()"
        conn.execute(stamp.encode())


@pytest.mark.spark
@pytest.mark.usefixtures("by_position")
def test_a_frontier_by_wal_position_is_right_without_writes_across_a_refresh(
    ms: Millstream, judge: Judge, conn: Connection
) -> None:
    conn.execute("INSERT INTO visits VALUES ('page 1', 1), ('page 1', 1)")
    ms.refresh_all()
    conn.execute("DELETE FROM orders WHERE id < 100")
    ms.refresh_all()
    assert not judge.wrong


@pytest.mark.spark
@pytest.mark.usefixtures("by_position")
def test_a_frontier_by_wal_position_loses_a_transaction_open_across_a_refresh(
    ms: Millstream, judge: Judge, database: str
) -> None:
    with connect(database) as slow:
        slow.execute("BEGIN")
        slow.execute("INSERT INTO visits VALUES ('page 1', 1), ('page 1', 1)")
        ms.refresh("visited")
        slow.execute("COMMIT")
    ms.refresh("visited")
    assert [(len(one.found.missing), len(one.found.extra)) for one in judge.wrong] == [(2, 0)]


@pytest.mark.spark
@pytest.mark.usefixtures("by_position")
def test_a_frontier_by_wal_position_differs_from_postgres_under_writes(
    judge: Judge, database: str, refresh_on_time: RefreshOnTime
) -> None:
    with Writers(database, seed=20, count=16, truncate_every=0):
        try:
            refresh_on_time(60, until=lambda: bool(judge.wrong))
        except TargetDiffers as error:
            # A lost row is deleted by its owner: the engine notices that it is not there.
            print(error)
    print(f"\n{judge}\n", *judge.wrong)
    assert judge.wrong


@pytest.mark.spark
def test_a_frontier_by_snapshot_keeps_a_transaction_open_across_a_refresh(
    ms: Millstream, judge: Judge, database: str
) -> None:
    ms.create_stream_table("visited", VIEWS["visited"])
    with connect(database) as slow:
        slow.execute("BEGIN")
        slow.execute("INSERT INTO visits VALUES ('page 1', 1), ('page 1', 1)")
        ms.refresh("visited")
        slow.execute("COMMIT")
    assert ms.refresh("visited").rows_inserted == 2
    assert not judge.wrong
