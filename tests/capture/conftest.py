"""The oracle of the capture tests: what the buffer tells must be what happened to the table.

`Watched` remembers a table's content and the snapshot it was read at. At each later cut, the old
content plus the images that came minus the images that went, all of the slice between the two
snapshots, must be the new content, as bags: PostgreSQL's own table is what the buffer is compared
with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg import sql

from millstream.capture.buffer.slices import buffer_name, column_name, slice_condition
from millstream.capture.trigger import triggers
from millstream.catalog.installation import install
from millstream.catalog.sources import Source
from millstream.frontier.snapshot import Snapshot
from millstream.postgres import relations
from millstream.postgres.connection import Connection, connect
from millstream.testing.bags import Bag, BagSlice


@dataclass
class Watched:
    """A captured table, and what is known of it at the last cut."""

    reader: Connection
    source: Source
    frontier: Snapshot = field(init=False)
    content: Bag = field(init=False)

    def __post_init__(self) -> None:
        with self._cut() as snapshot:
            self.frontier, self.content = snapshot, self._content()

    def check(self) -> BagSlice:
        """Take a cut; the buffer must account for the whole difference. Return what it held."""
        with self._cut() as snapshot:
            taken, content = self._slice(), self._content()
        assert not taken.truncated, "after TRUNCATE images alone do not tell the change"
        assert not taken.changed, "after an X images alone do not tell the change"
        # Subtracting an image that is not there would show as a difference: compare sums, not
        # clipped counts.
        taken.account_for(self.content, content)
        self.frontier, self.content = snapshot, content
        return taken

    def skip(self) -> BagSlice:
        """Take a cut without comparing, where a mark says that images do not tell the change."""
        with self._cut() as snapshot:
            taken, content = self._slice(), self._content()
        self.frontier, self.content = snapshot, content
        return taken

    def _cut(self) -> _Cut:
        return _Cut(self.reader)

    def _content(self) -> Bag:
        columns = [
            sql.SQL("{}::text").format(sql.Identifier(column.name))
            for column in self.source.columns
        ]
        return _bag(
            self.reader,
            columns,
            sql.Identifier(self.source.schema, self.source.name),
            sql.SQL("true"),
        )

    def _slice(self) -> BagSlice:
        columns = [
            sql.SQL("{}::text").format(column_name(column.attnum)) for column in self.source.columns
        ]
        buffer, rows = buffer_name(self.source.relid), slice_condition(self.frontier)

        def images(action: str) -> Bag:
            return _bag(
                self.reader,
                columns,
                buffer,
                sql.SQL("action = {} AND {}").format(sql.Literal(action), rows),
            )

        return BagSlice(images("I"), images("D"), images("T").total(), images("X").total())


@dataclass
class _Cut:
    """A REPEATABLE READ transaction; what is read in it is read at one snapshot."""

    reader: Connection

    def __enter__(self) -> Snapshot:
        self.reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return Snapshot.parse(
            self.reader.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0]
        )

    def __exit__(self, *_: object) -> None:
        self.reader.execute(
            "ROLLBACK" if self.reader.info.transaction_status == _FAILED else "COMMIT"
        )


_FAILED = psycopg.pq.TransactionStatus.INERROR


def _bag(
    reader: Connection,
    columns: Sequence[sql.Composable],
    table: sql.Composable,
    where: sql.Composable,
) -> Bag:
    # A row of no columns still counts: the literal keeps the select list from being empty.
    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
        sql.SQL(", ").join([sql.SQL("''"), *columns]), table, where
    )
    return Counter(tuple(row) for row in reader.execute(query))


Watch = Callable[..., Watched]


@pytest.fixture
def watch(conn: Connection, database: str) -> Iterator[Watch]:
    """Captures a table, by its name in SQL, and watches it; the catalog is there already."""
    install.install(conn)
    readers: list[Connection] = []

    def watched(name: str, columns: Sequence[str] | None = None, **options: Any) -> Watched:
        oid = conn.execute("SELECT %s::regclass::oid", (name,)).fetchall()[0][0]
        table = relations.table(conn, oid)
        source = triggers.install(
            conn, table, [c.name for c in table.columns] if columns is None else columns, **options
        )
        readers.append(connect(database))
        return Watched(readers[-1], source)

    yield watched
    for reader in readers:
        reader.close()
