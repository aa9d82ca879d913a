"""The process killed at each step of a hand-over while writers work: the next goes on, and every
change counts once.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from millstream.capture.trigger import triggers as trigger
from millstream.capture.trigger.inventory import triggers
from millstream.capture.wal import slot
from millstream.catalog import slots, sources, stream_tables
from millstream.observe.failpoint import TRANSITION_FAILPOINTS, VARIABLE
from millstream.postgres import relations
from millstream.postgres.connection import Connection, connect
from millstream.testing import forks

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log, Logged

CHILD = Path(__file__).parent / "cutover_child.py"
TO_THE_LOG = TRANSITION_FAILPOINTS[: TRANSITION_FAILPOINTS.index("transition_released") + 1]


@contextmanager
def _writing(dsn: str) -> Iterator[None]:
    """Short transactions, some of them rolled back, and one that is open most of the time."""
    ended = Event()

    def work(pause: float) -> None:
        with connect(dsn) as conn:
            number = 0
            while not ended.is_set():
                number += 1
                with conn.transaction(force_rollback=number % 5 == 0):
                    conn.execute("INSERT INTO t VALUES (%s, 'new')", (number,))
                    ended.wait(pause)
                    conn.execute("UPDATE t SET v = v || '.' WHERE id = %s", (number,))
                conn.execute("DELETE FROM t WHERE id = %s", (number - 20,))
                ended.wait(0.01)

    threads = [Thread(target=work, args=(pause,), daemon=True) for pause in (0.0, 0.01, 0.15)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _ran(dsn: str, goal: str, *, killed_at: str = "", **environment: str) -> None:
    """Run a process until it is killed at a failpoint, or without one to its end."""
    armed = {VARIABLE: killed_at} if killed_at else {}
    ended = forks.run(
        CHILD, dsn, goal, environment={**os.environ, **armed, **environment}, timeout=90
    )
    assert ended.returncode == (-signal.SIGKILL if killed_at else 0), ended.stderr[-3000:]


@pytest.fixture
def t(conn: Connection, log: Log) -> Logged:
    """A table on triggers, with a reader."""
    conn.execute(
        "CREATE TABLE t (id int, v text); CREATE INDEX ON t (id); INSERT INTO t VALUES (0, 'old')"
    )
    oid = conn.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    source = trigger.install(conn, relations.table(conn, oid), ["id", "v"])
    reader = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name="s", query="", canonical_query="", schedule="1s"
        ),
    )
    sources.add_dependency(conn, reader.id, oid, ["id", "v"])
    watched = log.watch(source)
    _reach(conn, watched)
    return watched


def _reach(conn: Connection, t: Logged) -> None:
    conn.execute(
        "UPDATE millstream.stream_tables SET frontier = %s::pg_snapshot", (str(t.frontier),)
    )


def _wish(conn: Connection, mode: str) -> None:
    conn.execute("UPDATE millstream.stream_tables SET cdc_mode = %s", (mode,))


def _check(conn: Connection, log: Log, t: Logged) -> int:
    """All that was written since the last time counts once."""
    log.slot = slots.get(conn, slot.name_of(conn))
    assert log.slot is not None
    log.start()
    images = log.check(t)[0].images
    log.stop()
    _reach(conn, t)
    return images


@pytest.mark.parametrize("point", TO_THE_LOG)
def test_killed_during_the_transition_to_wal(
    conn: Connection, log: Log, t: Logged, database: str, point: str
) -> None:
    with _writing(database):
        _ran(database, "WAL", killed_at=point)
        time.sleep(0.1)
        _ran(database, "WAL")
        time.sleep(0.1)
    assert _check(conn, log, t) > 10
    source = sources.get(conn, t.source.relid)
    assert source is not None
    assert source.mode == "WAL"
    assert [turn.origin for turn in source.cutovers] == ["t"]
    conn.execute("INSERT INTO t VALUES (-1, 'after')")
    assert _check(conn, log, t) == 1


def test_killed_on_the_way_back(conn: Connection, log: Log, t: Logged, database: str) -> None:
    with _writing(database):
        _ran(database, "WAL")
        _wish(conn, "trigger")
        _ran(database, "TRIGGER", killed_at="transition_returned")
        time.sleep(0.1)
        _ran(database, "TRIGGER")
    assert _check(conn, log, t) > 10
    # The reader has passed all turns: the slot is not needed any more.
    _ran(database, "SETTLED")
    assert (
        conn.execute(
            "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        ).fetchall()
        == []
    )


def test_killed_after_wal_was_lost(conn: Connection, log: Log, t: Logged, database: str) -> None:
    _ran(database, "WAL")
    assert not triggers(conn, [t.source.relid])[t.source.relid]
    conn.execute("INSERT INTO t VALUES (1, 'untold')")
    _until(lambda: _dropped(conn))
    _ran(database, "TRIGGER", killed_at="transition_lost")
    _ran(database, "TRIGGER")
    snapshot, content = t.cut()
    assert t.slice(snapshot).changed == 1, "its readers reinitialise"
    t.frontier, t.content = snapshot, content
    conn.execute("INSERT INTO t VALUES (2, 'told'), (3, 'told')")
    snapshot, content = t.cut()
    taken = t.slice(snapshot)
    taken.account_for(t.content, content)
    assert (taken.images, taken.changed) == (2, 0)


def test_killed_after_giving_up(conn: Connection, log: Log, t: Logged, database: str) -> None:
    with connect(database) as slow:
        # The slot waits for it, and so does the hand-over.
        slow.execute("BEGIN; INSERT INTO t VALUES (1, 'slow')")
        at_once = {"MILLSTREAM_WAL_TRANSITION_TIMEOUT": "1ms"}
        _ran(database, "WAL", killed_at="transition_given_up", **at_once)
        slow.execute("COMMIT")
    source = sources.get(conn, t.source.relid)
    assert source is not None
    assert (source.mode, source.cutovers) == ("TRIGGER", ())
    snapshot, content = t.cut()
    t.slice(snapshot).account_for(t.content, content)


def _dropped(conn: Connection) -> bool:
    """The server may take a moment to see that the reader is gone."""
    drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
    return bool(
        conn.execute(
            f"{drop} WHERE database = current_database() AND NOT active".encode()
        ).fetchall()
    )


def _until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
