"""The law of the hand-over: whoever captures, every committed change counts once, at every cut.

A run is a seed: eight writers, a session that changes the definitions of other tables, and three
sources that are handed over to the log, and in every second run back to triggers, while cuts are
taken all the time. At each of them what the buffers tell must be the difference to the one before.
MILLSTREAM_TEST_HANDOVERS says how many runs.

The control decides by positions in the log, as is often proposed: what a trigger wrote before the
position counts, and what commits after it. A transaction that writes before it and commits after it
counts twice.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from psycopg import errors, sql

from millstream.capture.buffer import prune, slices
from millstream.capture.transition import cutover
from millstream.capture.trigger import triggers
from millstream.capture.wal import buffer_writer, slot
from millstream.capture.wal.pipeline import Options
from millstream.catalog import slots, sources, stream_tables
from millstream.catalog.sources import Source
from millstream.errors import LockNotHad
from millstream.postgres import relations
from millstream.postgres.connection import Connection, connect
from millstream.testing.bags import BagSlice
from millstream.testing.writers import Writers, make_tables

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log, Logged

RUNS = int(os.environ.get("MILLSTREAM_TEST_HANDOVERS", "6"))
TABLES = ("customers", "orders", "visits")
# Long enough to span every step of a hand-over, short enough for it to come to an end soon.
PACES = {0.0: 80, 0.02: 15, 0.15: 5}
SECONDS = 60.0


@dataclass
class Run:
    """Three sources, one reader of each, and what has been seen."""

    conn: Connection
    log: Log
    dice: random.Random
    watched: list[Logged] = field(default_factory=list)
    cuts: int = 0
    images: int = 0

    def __post_init__(self) -> None:
        make_tables(self.conn)
        for name in TABLES:
            oid = self.conn.execute("SELECT %s::regclass::oid", (name,)).fetchall()[0][0]
            table = relations.table(self.conn, oid)
            source = triggers.install(self.conn, table, [column.name for column in table.columns])
            reader = stream_tables.add(
                self.conn,
                stream_tables.NewStreamTable(
                    schema_name="public",
                    name=f"of_{name}",
                    query="",
                    canonical_query="",
                    schedule="1s",
                ),
            )
            sources.add_dependency(
                self.conn, reader.id, oid, [column.name for column in table.columns]
            )
            self.watched.append(self.log.watch(source))
        self._advance()

    def _advance(self) -> None:
        for each in self.watched:
            advance = (
                "UPDATE millstream.stream_tables SET frontier = %s::pg_snapshot WHERE name = %s"
            )
            self.conn.execute(advance, (str(each.frontier), f"of_{each.source.name}"))

    def check(self) -> None:
        """A cut of all three: each change counts once."""
        self.follow()
        taken = self.log.check(*self.watched) if self.log.pipeline else _by_triggers(self.watched)
        self.cuts += 1
        self.images += sum(one.images for one in taken)
        self._advance()
        if self.dice.random() < 0.3:
            prune.prune(self.conn, [each.source.relid for each in self.watched])

    def follow(self) -> None:
        """Read the log as soon as there is one."""
        if self.log.pipeline is None:
            self.log.slot = slots.get(self.conn, slot.name_of(self.conn))
            if self.log.slot is not None:
                self.log.start(Options(linger=0.0))

    def modes(self) -> list[str]:
        return [source.mode for source in sources.every(self.conn)]

    # -- the steps ---------------------------------------------------------------------------

    def to_the_log(self) -> None:
        """Hand all of them over, one step of one source at a time, in any order."""
        deadline = time.monotonic() + SECONDS
        for each in self.watched:
            cutover.begin(self.conn, each.source.relid)
        while set(self.modes()) != {"WAL"}:
            assert time.monotonic() < deadline, "the hand-over has not come to an end"
            _had(self._step, self.dice.choice(sources.every(self.conn)))
            if self.dice.random() < 0.5:
                self.check()
        for each in self.watched:
            self._until(
                deadline, lambda source: cutover.drop_triggers(self.conn, source.relid), each
            )
            self.check()

    def _step(self, source: Source) -> None:
        if source.mode != "TRANSITIONING":
            return
        if source.published_at is None:
            cutover.publish(self.conn, self.log.dsn, source.relid)
        elif self.dice.random() < 0.2:
            cutover.switch_under_lock(self.conn, source.relid)
        else:
            cutover.switch_to_wal(self.conn, source.relid)

    def back(self) -> None:
        """Have triggers in charge again."""
        deadline = time.monotonic() + SECONDS
        for each in self.watched:
            self._until(
                deadline,
                lambda source: cutover.return_to_triggers(self.conn, source.relid, "a wish"),
                each,
            )
            self.check()
        assert set(self.modes()) == {"TRIGGER"}
        for each in self.watched:
            assert cutover.forget_cutovers(self.conn, each.source.relid), (
                "its reader has passed all cutovers"
            )
        cutover.unpublish_unused(self.conn)
        assert slot.published(self.conn) == set()
        self.check()

    def _until(self, deadline: float, step: Callable[[Source], object], each: Logged) -> None:
        while not _had(step, each.source):
            assert time.monotonic() < deadline, "the lock was not to be had"
            self.check()


def _had(step: Callable[[Source], object], source: Source) -> bool:
    """Take a step; False where a lock was not to be had."""
    try:
        step(source)
    except (LockNotHad, errors.LockNotAvailable):
        time.sleep(0.02)
        return False
    return True


def _by_triggers(watched: Sequence[Logged]) -> list[BagSlice]:
    taken = list[BagSlice]()
    for each in watched:
        snapshot, content = each.cut()
        taken.append(each.slice(snapshot))
        taken[-1].account_for(each.content, content)
        each.frontier, each.content = snapshot, content
    return taken


@contextmanager
def _other_definitions(dsn: str) -> Iterator[None]:
    """Somebody makes, alters and drops other tables, in transactions that also write to a source."""
    ended = Event()

    def work() -> None:
        with connect(dsn) as conn:
            number = 0
            while not ended.wait(0.02):
                number += 1
                try:
                    with conn.transaction():
                        conn.execute("SET LOCAL lock_timeout = '200ms'")
                        conn.execute(f"CREATE TABLE other_{number} (id int)".encode())
                        conn.execute("INSERT INTO visits VALUES ('other', 1)")
                        conn.execute(
                            f"ALTER TABLE other_{number} ADD name text DEFAULT 'x'".encode()
                        )
                    conn.execute(f"DROP TABLE other_{number}".encode())
                except (errors.LockNotAvailable, errors.DeadlockDetected):
                    continue

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _end_prepared(conn: Connection) -> None:
    for (gid,) in conn.execute(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    ).fetchall():
        conn.execute(f"ROLLBACK PREPARED '{gid}'".encode())


@pytest.mark.parametrize("seed", range(RUNS))
def test_every_change_counts_once_while_sources_are_handed_over(
    conn: Connection, log: Log, database: str, seed: int
) -> None:
    run = Run(conn, log, random.Random(seed))
    with (
        Writers(database, seed=seed, count=8, truncate_every=0, paces=PACES) as writers,
        _other_definitions(database),
    ):
        run.check()
        run.to_the_log()
        run.check()
        if seed % 2:
            run.back()
    _end_prepared(conn)
    run.check()
    print(f"\n{run.cuts} cuts, {run.images} images, {dict(writers.done)}")
    assert run.images > 0


def test_the_control_by_wal_positions_is_caught(
    conn: Connection, log: Log, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(conn, log, random.Random(0))
    committed: dict[int, int] = {}
    writing = buffer_writer._BatchWriting.run

    def noted(self: buffer_writer._BatchWriting) -> None:
        committed.update(zip(self.xids, map(int, self.lsns), strict=True))
        writing(self)

    monkeypatch.setattr(buffer_writer._BatchWriting, "run", noted)
    for each in run.watched:
        stamp = sql.SQL("ALTER TABLE {} ADD lsn pg_lsn DEFAULT pg_current_wal_insert_lsn()")
        conn.execute(stamp.format(slices.buffer_name(each.source.relid)))
    for each in run.watched:
        cutover.begin(conn, each.source.relid)
        cutover.publish(conn, log.dsn, each.source.relid)
    run.check()
    with (
        connect(database) as slow,
        Writers(database, seed=1, count=8, truncate_every=0, paces=PACES),
    ):
        # It has written before the position, and commits after it.
        slow.execute("BEGIN")
        slow.execute("INSERT INTO visits VALUES ('slow', 1), ('slow', 2)")
        position = conn.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::int8").fetchall()[0][
            0
        ]

        def by_position(source: Source) -> sql.Composed:
            late = [str(xid) for xid, lsn in committed.items() if lsn >= position]
            rule = (
                "CASE origin WHEN 'l' THEN xid::text = ANY ({}::text[]) ELSE lsn - '0/0' < {} END"
            )
            return sql.SQL(rule).format(sql.Literal(late), sql.Literal(position))

        monkeypatch.setitem(type(run.watched[0]).slice.__globals__, "origin_condition", by_position)
        slow.execute("COMMIT")
        # Which of the wrong rows is met first depends on the other writers.
        with pytest.raises(AssertionError, match=r"too many|missing"):
            run.check()
    _end_prepared(conn)


def test_a_transaction_that_begins_while_the_table_is_being_published_is_waited_for(
    conn: Connection, log: Log, database: str
) -> None:
    """Its id is above the publishing one's, its first rows are not told, and no snapshot of that
    time tells so.
    """
    run = Run(conn, log, random.Random(0))
    others, orders = run.watched[0].source, run.watched[1].source
    cutover.begin(conn, others.relid)
    cutover.publish(conn, database, others.relid)
    cutover.begin(conn, orders.relid)
    conn.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    with connect(database) as slow:
        with conn.transaction():
            slot.publish(conn, relations.names(conn, [orders.relid]))
            slow.execute("BEGIN")
            slow.execute("INSERT INTO orders VALUES (5001, 1, 1, 'not told')")
        cutover.publish(conn, database, orders.relid)
        slow.execute("INSERT INTO orders VALUES (5002, 1, 1, 'told')")
        cutover.switch_to_wal(conn, orders.relid)
        assert sources.every(conn)[1].mode == "TRANSITIONING", "it may still write"
        slow.execute("COMMIT")
    cutover.switch_to_wal(conn, orders.relid)
    assert sources.every(conn)[1].mode == "WAL"
    run.check()
    assert run.images == 2


@pytest.mark.parametrize(
    "fault",
    ["ALTER PUBLICATION {} DROP TABLE orders", "ALTER TABLE orders REPLICA IDENTITY DEFAULT"],
)
def test_what_somebody_altered_on_the_way_is_published_once_more(
    conn: Connection, log: Log, fault: str
) -> None:
    run = Run(conn, log, random.Random(0))
    orders = run.watched[1].source
    cutover.begin(conn, orders.relid)
    cutover.publish(conn, log.dsn, orders.relid)
    conn.execute(fault.format(slot.name_of(conn)).encode())
    conn.execute("INSERT INTO orders VALUES (5001, 1, 1, 'not told')")
    assert not cutover.switch_to_wal(conn, orders.relid)
    assert not cutover.switch_under_lock(conn, orders.relid)
    cutover.publish(conn, log.dsn, orders.relid)
    conn.execute("DELETE FROM orders WHERE id = 5001")
    assert cutover.switch_to_wal(conn, orders.relid)
    conn.execute("DELETE FROM orders WHERE id = 1")
    run.check()
    assert run.images == 3
