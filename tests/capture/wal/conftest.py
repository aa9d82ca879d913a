"""The oracle of capture by the log: at any cut, what the buffer tells must be what happened to the
table.

    S0 ── cut: content, S1 ── barrier ── wait ── buffer: rows of transactions that S1 sees and S0
    does not

The barrier comes after the cut; what it waits for has been stored since, so the buffer is read
afterwards, and both ends of the slice are decided by the rows' transaction ids; and so is whose
rows count, by what the catalog says at the cut.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from psycopg import sql

from millstream.capture.buffer.slices import (
    buffer_name,
    column_name,
    origin_condition,
    seen_condition,
    slice_condition,
)
from millstream.capture.trigger import triggers as trigger
from millstream.capture.trigger.inventory import triggers
from millstream.capture.wal import slot
from millstream.capture.wal.heartbeat import barrier
from millstream.capture.wal.pipeline import Options, Pipeline
from millstream.catalog import slots, sources
from millstream.catalog.installation import install
from millstream.catalog.slots import Slot
from millstream.catalog.sources import Source
from millstream.frontier.snapshot import Snapshot
from millstream.postgres import relations
from millstream.postgres.connection import Connection, connect
from millstream.postgres.relations import Name
from millstream.testing.bags import Bag, BagSlice

# Quick, so that tests are.
BRISK = Options(
    status_interval=0.5,
    idle_bytes=1,
    idle_seconds=0.2,
    idle_at_most=0.5,
    pause=0.05,
    longest_pause=0.5,
    patience=5.0,
)


def set_up(conn: Connection, name: str, columns: Sequence[str] | None = None) -> Source:
    """Make a table a source that is captured from WAL: its buffer, its place in the catalog, no
    triggers.
    """
    oid = conn.execute("SELECT %s::regclass::oid", (name,)).fetchall()[0][0]
    table = relations.table(conn, oid)
    made = trigger.install(
        conn, table, [c.name for c in table.columns] if columns is None else columns
    )
    for found in triggers(conn, [oid])[oid]:
        conn.execute(
            sql.SQL("DROP TRIGGER {} ON {}").format(
                sql.Identifier(found.name), found.table.identifier
            )
        )
    for each in relations.names(conn, [oid, *made.partitions]):
        conn.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(each.identifier))
    conn.execute("UPDATE millstream.sources SET cdc_mode = 'WAL' WHERE relid = %s", (oid,))
    slot.publish(conn, [Name(oid, table.schema, table.name)])
    source = sources.get(conn, oid)
    assert source is not None
    return source


@dataclass
class Logged:
    """A table captured from WAL, and what is known of it at the last cut."""

    reader: Connection
    source: Source
    frontier: Snapshot = field(init=False)
    content: Bag = field(init=False)

    def __post_init__(self) -> None:
        self.frontier, self.content = self.cut()

    def cut(self) -> tuple[Snapshot, Bag]:
        """The table's content at a snapshot."""
        self.reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        snapshot = Snapshot.parse(
            self.reader.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0]
        )
        self.source = sources.get(self.reader, self.source.relid) or self.source
        columns = [
            sql.SQL("{}::text").format(sql.Identifier(column.name))
            for column in self.source.columns
        ]
        content = self._bag(
            columns, sql.Identifier(self.source.schema, self.source.name), sql.SQL("true")
        )
        self.reader.execute("COMMIT")
        return snapshot, content

    def slice(self, end: Snapshot) -> BagSlice:
        """What the buffer holds between the last cut and this one."""
        columns = [
            sql.SQL("{}::text").format(column_name(column.attnum)) for column in self.source.columns
        ]
        told = [slice_condition(self.frontier), seen_condition(end), origin_condition(self.source)]

        def images(action: str) -> Bag:
            where = [sql.SQL("action = {}").format(sql.Literal(action)), *told]
            return self._bag(columns, buffer_name(self.source.relid), sql.SQL(" AND ").join(where))

        return BagSlice(images("I"), images("D"), images("T").total(), images("X").total())

    def _bag(
        self, columns: Sequence[sql.Composable], table: sql.Composable, where: sql.Composable
    ) -> Bag:
        listed = sql.SQL(", ").join([sql.SQL("''"), *columns])
        query = sql.SQL("SELECT {} FROM {} WHERE {}").format(listed, table, where)
        return Counter(tuple(row) for row in self.reader.execute(query))


@dataclass
class Log:
    """A database with a slot, and the pipeline that reads from it."""

    conn: Connection
    dsn: str
    open_one: Callable[[], Connection]
    slot: Slot | None = None
    pipeline: Pipeline | None = None

    def capture(self, name: str, columns: Sequence[str] | None = None) -> Logged:
        """Capture a table from the log and watch it; before the first start, the slot is made here."""
        source = set_up(self.conn, name, columns)
        if self.slot is None:
            self.slot = slot.create(self.conn, self.dsn)
        return self.watch(source)

    def watch(self, source: Source) -> Logged:
        """Watch a source, however it is captured."""
        return Logged(self.open_one(), source)

    def start(self, options: Options = BRISK, dsn: str = "") -> Pipeline:
        """Start a pipeline, in the place of any other."""
        assert self.slot is not None
        self.pipeline = Pipeline(dsn or self.dsn, self.slot.name, options)
        self.pipeline.start()
        return self.pipeline

    def stop(self) -> None:
        if self.pipeline is not None:
            pipeline, self.pipeline = self.pipeline, None
            pipeline.stop()

    def wait_until_free(self, seconds: float = 20.0) -> None:
        """The server finds out by itself that its client is gone; a database with an active slot
        cannot be dropped.
        """
        deadline = time.monotonic() + seconds
        active = "SELECT 1 FROM pg_replication_slots WHERE active AND database = current_database()"
        while self.conn.execute(active).fetchone():
            assert time.monotonic() < deadline, "the server has not noticed"
            time.sleep(0.02)

    def settle(self, seconds: float = 60.0) -> None:
        """Wait until all that has been committed is in the buffers."""
        assert self.pipeline is not None
        assert self.pipeline.wait(barrier(self.conn), seconds), self.pipeline.health

    def check(self, *watched: Logged) -> list[BagSlice]:
        """Take a cut of each; the buffers must account for the whole difference."""
        cuts = [each.cut() for each in watched]
        self.settle()
        taken = [each.slice(snapshot) for each, (snapshot, _) in zip(watched, cuts, strict=True)]
        for each, (snapshot, content), found in zip(watched, cuts, taken, strict=True):
            assert not found.truncated, "after TRUNCATE images alone do not tell the change"
            assert not found.changed, "after an X images alone do not tell the change"
            found.account_for(each.content, content)
            each.frontier, each.content = snapshot, content
        return taken

    def confirmed(self) -> int:
        """What the server believes to be durable."""
        assert self.slot is not None
        query = "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = %s"
        found: int = self.conn.execute(query, (self.slot.name,)).fetchall()[0][0]
        return found

    def cursor(self) -> int:
        """What we have recorded as durable."""
        assert self.slot is not None
        found = slots.get(self.conn, self.slot.name)
        assert found is not None
        return found.cursor


@pytest.fixture
def make_log() -> Iterator[Callable[[str], Log]]:
    """Sets a database up for capture by the log."""
    opened: list[Connection] = []
    made: list[Log] = []

    def make(dsn: str) -> Log:
        def open_one() -> Connection:
            opened.append(connect(dsn))
            return opened[-1]

        made.append(Log(open_one(), dsn, open_one))
        install.install(made[-1].conn)
        return made[-1]

    yield make
    for each in made:
        if each.pipeline is not None:
            each.pipeline.stop()
            each.wait_until_free()
    for conn in opened:
        conn.close()


@pytest.fixture
def log(make_log: Callable[[str], Log], database: str) -> Log:
    """A fresh database, set up."""
    return make_log(database)


@pytest.fixture
def little_decoding_memory(conn: Connection) -> Iterator[None]:
    """The server holds little of a transaction: what is larger is sent before it ends, or waits on
    its disk.
    """
    conn.execute("ALTER SYSTEM SET logical_decoding_work_mem = '64kB'")
    conn.execute("SELECT pg_reload_conf()")
    yield
    conn.execute("ALTER SYSTEM RESET logical_decoding_work_mem")
    conn.execute("SELECT pg_reload_conf()")
