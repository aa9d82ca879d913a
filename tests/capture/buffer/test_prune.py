"""Pruning removes what every reader has seen, keeps what one still needs, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

import pytest

from millstream.capture.buffer.prune import oldest, prune
from millstream.catalog import sources, stream_tables
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.conftest import Watch, Watched

_numbers = count(1)


def reader_of(conn: Connection, t: Watched) -> int:
    """A stream table over the source, without a frontier yet: its id."""
    name = f"reader_{next(_numbers)}"
    table = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name=name, query="", canonical_query="", schedule="1s"
        ),
    )
    sources.add_dependency(
        conn, table.id, t.source.relid, [column.name for column in t.source.columns]
    )
    return table.id


def now(conn: Connection) -> Snapshot:
    return Snapshot.parse(conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0])


def advance(conn: Connection, *ids: int, to: Snapshot | None = None) -> None:
    advanced = stream_tables.Advance(str(to or now(conn)), datetime.now(UTC))
    stream_tables.advance(conn, ids, advanced)


def waiting(conn: Connection, t: Watched) -> list[int]:
    query = f"SELECT c1 FROM millstream_changes.changes_{t.source.relid} ORDER BY c1"
    return [id for (id,) in conn.execute(query)]


@pytest.fixture
def t(conn: Connection, watch: Watch) -> Watched:
    conn.execute("CREATE TABLE t (id int)")
    return watch("t")


def test_what_the_reader_has_seen_goes(conn: Connection, t: Watched) -> None:
    reader = reader_of(conn, t)
    conn.execute("INSERT INTO t VALUES (1), (2)")
    advance(conn, reader)
    conn.execute("INSERT INTO t VALUES (3)")
    assert prune(conn, [t.source.relid]) == 2
    assert waiting(conn, t) == [3]
    assert prune(conn, [t.source.relid]) == 0


def test_a_transaction_open_across_the_prune_loses_nothing(
    conn: Connection, another: Callable[[], Connection], t: Watched
) -> None:
    reader = reader_of(conn, t)
    advance(conn, reader)
    early = another()
    early.execute("BEGIN")
    early.execute("INSERT INTO t VALUES (1)")
    conn.execute("INSERT INTO t VALUES (2)")
    t.check()
    advance(conn, reader, to=t.frontier)
    assert prune(conn, [t.source.relid]) == 1
    early.execute("INSERT INTO t VALUES (3)")
    early.execute("COMMIT")
    assert prune(conn, [t.source.relid]) == 0, "it has committed, but no frontier has seen it"
    assert t.check().came == {("", "1"): 1, ("", "3"): 1}
    advance(conn, reader, to=t.frontier)
    assert prune(conn, [t.source.relid]) == 2


def test_a_prepared_transaction_across_the_prune_loses_nothing(
    conn: Connection, t: Watched
) -> None:
    reader = reader_of(conn, t)
    conn.execute("BEGIN")
    conn.execute("INSERT INTO t VALUES (1)")
    conn.execute("PREPARE TRANSACTION 'across the prune'")
    conn.execute("INSERT INTO t VALUES (2)")
    t.check()
    advance(conn, reader, to=t.frontier)
    assert prune(conn, [t.source.relid]) == 1
    conn.execute("COMMIT PREPARED 'across the prune'")
    assert prune(conn, [t.source.relid]) == 0
    assert t.check().came == {("", "1"): 1}


def test_what_one_of_two_readers_still_needs_stays(conn: Connection, t: Watched) -> None:
    fast, slow = reader_of(conn, t), reader_of(conn, t)
    conn.execute("INSERT INTO t VALUES (1)")
    advance(conn, fast, slow)
    conn.execute("INSERT INTO t VALUES (2)")
    advance(conn, fast)
    conn.execute("INSERT INTO t VALUES (3)")
    assert prune(conn, [t.source.relid]) == 1
    assert waiting(conn, t) == [2, 3]
    advance(conn, slow)
    assert prune(conn, [t.source.relid]) == 1
    assert waiting(conn, t) == [3]


def test_frontiers_that_saw_different_transactions_keep_the_union(
    conn: Connection, another: Callable[[], Connection], t: Watched
) -> None:
    first, second = reader_of(conn, t), reader_of(conn, t)
    sessions = [another(), another()]
    for number, session in enumerate(sessions):
        session.execute("BEGIN")
        session.execute("INSERT INTO t VALUES (%s)", (number,))
    xids = [
        session.execute("SELECT pg_current_xact_id()::text::int8").fetchall()[0][0]
        for session in sessions
    ]
    for session in sessions:
        session.execute("COMMIT")
    # Each has seen one of the two, as if their cuts had met the commits in different order.
    advance(conn, first, to=Snapshot(min(xids), max(xids) + 1, (xids[0],)))
    advance(conn, second, to=Snapshot(min(xids), max(xids) + 1, (xids[1],)))
    assert prune(conn, [t.source.relid]) == 0
    advance(conn, first)
    assert prune(conn, [t.source.relid]) == 1
    assert waiting(conn, t) == [1]


def test_a_reader_without_a_frontier_keeps_everything(conn: Connection, t: Watched) -> None:
    reader, _ = reader_of(conn, t), reader_of(conn, t)
    conn.execute("INSERT INTO t VALUES (1)")
    advance(conn, reader)
    assert prune(conn, [t.source.relid]) == 0


def test_a_reader_that_is_being_added_keeps_everything(
    conn: Connection, another: Callable[[], Connection], t: Watched
) -> None:
    reader = reader_of(conn, t)
    conn.execute("INSERT INTO t VALUES (1)")
    advance(conn, reader)
    creating = another()
    with creating.transaction():
        reader_of(creating, t)
        assert prune(conn, [t.source.relid]) == 0, "its row is not to be seen yet, its lock is"
    assert prune(conn, [t.source.relid]) == 0


def test_without_readers_everything_goes(conn: Connection, t: Watched) -> None:
    conn.execute("INSERT INTO t VALUES (1), (2)")
    assert prune(conn, [t.source.relid]) == 2


def test_large_buffers_go_in_batches(conn: Connection, t: Watched) -> None:
    reader = reader_of(conn, t)
    conn.execute("INSERT INTO t SELECT generate_series(1, 1050)")
    advance(conn, reader)
    conn.execute("INSERT INTO t VALUES (0)")
    assert prune(conn, [t.source.relid], batch=100) == 1050
    assert waiting(conn, t) == [0]


def test_two_that_prune_at_once_do_not_wait_for_each_other(
    conn: Connection, another: Callable[[], Connection], t: Watched
) -> None:
    reader = reader_of(conn, t)
    conn.execute("INSERT INTO t VALUES (1)")
    advance(conn, reader)
    other = another()
    with other.transaction():
        assert prune(other, [t.source.relid]) == 1
        assert prune(conn, [t.source.relid]) == 0


def test_what_has_no_buffer_or_is_no_source_is_passed_over(conn: Connection, t: Watched) -> None:
    conn.execute(f"DROP TABLE millstream_changes.changes_{t.source.relid}")
    assert prune(conn, [t.source.relid, 1]) == 0


def test_only_the_oldest_frontiers_decide() -> None:
    early, late, other = Snapshot(10, 20, (12,)), Snapshot(15, 30), Snapshot(9, 18)
    assert oldest([late, early]) == [early]
    assert oldest([early, late, early]) == [early]
    assert oldest([early, other]) == [early, other], "each has seen what the other has not"
    assert oldest([]) == []
