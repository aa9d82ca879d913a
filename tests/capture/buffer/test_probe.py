"""Which readers have something to consume."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.capture.buffer.probe import changed, sources_since
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.conftest import Watch


def now(conn: Connection) -> Snapshot:
    return Snapshot.parse(conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0])


def test_only_the_frontiers_before_a_change_are_returned(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE a (id int); CREATE TABLE b (id int)")
    a, b = watch("a").source.relid, watch("b").source.relid
    start = now(conn)
    assert changed(conn, [(a, start), (b, start)]) == set()
    conn.execute("INSERT INTO a VALUES (1)")
    end = now(conn)
    assert changed(conn, [(a, start), (b, start), (a, end), (b, end)]) == {(a, start)}
    conn.execute("DELETE FROM b")
    assert changed(conn, [(b, end)]) == set(), "nothing was deleted"
    conn.execute("TRUNCATE b")
    assert changed(conn, [(a, end), (b, end), (b, start)]) == {(b, end), (b, start)}


def test_a_transaction_that_commits_late_is_found_although_its_rows_are_old(
    conn: Connection, watch: Watch
) -> None:
    conn.execute("CREATE TABLE a (id int)")
    a = watch("a").source.relid
    conn.execute("INSERT INTO a VALUES (1)")
    written = conn.execute(
        "SELECT max(xid::text)::bigint FROM millstream_changes.changes_" + str(a)
    ).fetchall()[0][0]
    after = now(conn)
    # As if it had still been running when the frontier was taken; a later one has been seen.
    without = Snapshot(written, after.xmax, (written,))
    assert changed(conn, [(a, without), (a, after)]) == {(a, without)}


def test_where_a_buffer_is_gone_a_refresh_has_to_tell_why_and_others_are_asked_all_the_same(
    conn: Connection, watch: Watch
) -> None:
    conn.execute("CREATE TABLE a (id int); CREATE TABLE b (id int)")
    a, b, gone = watch("a").source.relid, watch("b").source.relid, 4_000_000_000
    start = now(conn)
    conn.execute("INSERT INTO b VALUES (1)")
    assert changed(conn, {(a, start), (b, start), (gone, start)}) == {(b, start), (gone, start)}
    assert changed(conn, {(gone, start)}) == {(gone, start)}
    assert sources_since(conn, dict.fromkeys((a, b, gone), start.xmin)) == {b, gone}
    assert sources_since(conn, {gone: start.xmin}) == {gone}


def test_where_a_buffer_is_locked_there_may_be_changes(
    conn: Connection, watch: Watch, another: Callable[[], Connection]
) -> None:
    conn.execute("CREATE TABLE a (id int); CREATE TABLE b (id int)")
    a, b = watch("a").source.relid, watch("b").source.relid
    start = now(conn)
    other = another()
    with other.transaction():
        other.execute(f"LOCK TABLE millstream_changes.changes_{a}".encode())
        conn.execute("SET lock_timeout = '50ms'")
        assert changed(conn, [(a, start), (b, start)]) == {(a, start), (b, start)}
        assert sources_since(conn, {a: start.xmin, b: start.xmin}) == {a, b}
    assert changed(conn, [(a, start), (b, start)]) == set()


def test_nothing_is_asked_for_nothing(conn: Connection) -> None:
    assert changed(conn, []) == set()
    assert sources_since(conn, {}) == set()
