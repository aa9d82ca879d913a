"""A slice holds what came after a frontier, and `pending` tells what waits there without missing a
mark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from millstream.capture.buffer.slices import (
    Pending,
    buffer_name,
    column_name,
    pending,
    slice_condition,
)
from millstream.errors import SourceChanged
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.conftest import Watch


def now(conn: Connection) -> Snapshot:
    return Snapshot.parse(conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0])


def test_names_and_condition_print_as_sql(conn: Connection) -> None:
    assert buffer_name(7).as_string(conn) == '"millstream_changes"."changes_7"'
    assert column_name(3).as_string(conn) == '"c3"'
    assert slice_condition(Snapshot(10, 20, (12, 15))).as_string(conn) == (
        "xid >= '10'::xid8 AND NOT pg_visible_in_snapshot(xid, '10:20:12,15'::pg_snapshot)"
    )


def test_the_condition_agrees_with_the_snapshot(conn: Connection) -> None:
    for frontier in (Snapshot(10, 20, (12, 15)), Snapshot(10, 10), Snapshot(3, 30, (3, 29))):
        numbers = "generate_series(0, 40) AS x, LATERAL (SELECT x::text::xid8 AS xid) AS r"
        query = f"SELECT x FROM {numbers} WHERE {slice_condition(frontier).as_string(conn)}"
        assert {x for (x,) in conn.execute(query)} == {x for x in range(41) if not frontier.sees(x)}


def test_a_transaction_that_wrote_early_and_commits_late_is_in_the_later_slice(
    conn: Connection, another: Callable[[], Connection], watch: Watch
) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = watch("t")
    early = another()
    early.execute("BEGIN")
    early.execute("INSERT INTO t VALUES (1)")
    conn.execute("INSERT INTO t VALUES (2)")
    assert t.check().came == {("", "2"): 1}
    early.execute("COMMIT")
    assert t.check().came == {("", "1"): 1}
    assert t.check().images == 0


def test_pending_answers_for_many_pairs_in_order(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE a (id int); CREATE TABLE b (id int)")
    a, b = watch("a").source.relid, watch("b").source.relid
    start = now(conn)
    conn.execute("INSERT INTO a SELECT generate_series(1, 10)")
    middle = now(conn)
    conn.execute("DELETE FROM a WHERE id > 7")
    conn.execute("TRUNCATE b")
    end = now(conn)
    found = pending(conn, [(b, start), (a, start), (a, middle), (a, start), (a, end), (b, end)])
    assert found == [
        Pending(b, start, 1, truncated=True),
        Pending(a, start, 13),
        Pending(a, middle, 3),
        Pending(a, start, 13),
        Pending(a, end, 0),
        Pending(b, end, 0),
    ]


def test_the_cap_stops_counting_and_hides_no_mark(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = watch("t").source.relid
    start = now(conn)
    conn.execute("INSERT INTO t SELECT generate_series(1, 1000)")
    conn.execute("TRUNCATE t")
    conn.execute("ALTER TABLE t RENAME id TO other")
    conn.execute("INSERT INTO t VALUES (1)")
    assert pending(conn, [(t, start)], cap=5) == [
        Pending(t, start, 5, truncated=True, gap="SOURCE_CHANGED")
    ]
    assert pending(conn, [(t, start)]) == [
        Pending(t, start, 1002, truncated=True, gap="SOURCE_CHANGED")
    ]
    assert pending(conn, []) == []


def test_pending_uses_the_index(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = watch("t").source.relid
    for _ in range(30):
        conn.execute("INSERT INTO t SELECT generate_series(1, 1000)")
    frontier = now(conn)
    conn.execute("INSERT INTO t VALUES (1)")
    conn.execute(f"ANALYZE millstream_changes.changes_{t}")
    query = f"EXPLAIN SELECT FROM {buffer_name(t).as_string(conn)} WHERE {slice_condition(frontier).as_string(conn)}"
    plan = "\n".join(line for (line,) in conn.execute(query))
    assert f"changes_{t}_xid_idx" in plan
    query = query.replace("WHERE", "WHERE action = 'X' AND")
    plan = "\n".join(line for (line,) in conn.execute(query))
    assert f"changes_{t}_marks_idx" in plan


def test_pending_of_a_buffer_that_is_gone_says_so(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = watch("t").source.relid
    conn.execute(f"DROP TABLE millstream_changes.changes_{t}")
    with pytest.raises(SourceChanged, match=str(t)) as raised:
        pending(conn, [(t, Snapshot(1, 1))])
    assert "buffer is gone" in raised.value.detail
