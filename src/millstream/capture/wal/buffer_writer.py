"""Write committed transactions into the change buffers, each exactly once.

One database transaction per batch writes the rows into the buffers of their sources, the watermark
of each source, and the slot's cursor. So rows and positions become durable together. Changes that
the server sends again after an interruption are at or below the watermarks, and are skipped:

    watermark of orders   (commit at 5A0, change 20000)      a large transaction, killed in the middle
    sent again            5A0: 1 .. 20000                    skipped
                          5A0: 20001 ..                      stored

A watermark counts the changes of its source only, so other published tables do not matter. Rows
have the 64-bit id of their transaction, like the rows of triggers, and values are PostgreSQL's own
texts, parsed by PostgreSQL.

If PostgreSQL cannot parse a value (an enum label that has been renamed), the transaction is marked
X instead of having images, and the readers reinitialise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from psycopg import errors, sql

from millstream.capture.buffer.slices import buffer_name, column_name
from millstream.capture.wal.acknowledge import Ledger
from millstream.capture.wal.messages.copy_text import copy_text
from millstream.capture.wal.messages.decode import decode
from millstream.capture.wal.messages.rows import Offsets, Rows, lay_out
from millstream.capture.wal.messages.spill import Piece
from millstream.capture.wal.messages.transactions import Transaction
from millstream.catalog import slots, sources
from millstream.catalog.slots import NO_PROGRESS, WHOLE, Progress, Watermark
from millstream.catalog.sources import Source
from millstream.errors import SlotLost, WalTakenOver
from millstream.observe import log
from millstream.observe.failpoint import failpoint
from millstream.postgres import relations
from millstream.postgres.composed import listed
from millstream.postgres.connection import Connection

# The most that one database transaction writes: larger batches are no faster.
BATCH_ROWS = 20_000
BATCH_BYTES = 4 << 20
# So many rows are decoded at once: they stay in the processor's cache.
SLAB = 2_000

# Errors of COPY for a value that cannot be parsed, because its type or a name was changed after it
# was written.
UNREADABLE = (
    errors.DataError,
    errors.NotSupportedError,
    errors.UndefinedObject,
    errors.UndefinedTable,
    errors.UndefinedFunction,
    errors.AmbiguousFunction,
    errors.InvalidSchemaName,
    errors.CheckViolation,
    errors.NotNullViolation,
)


@dataclass(frozen=True)
class Part:
    """A transaction, or some of a large one."""

    transaction: Transaction
    piece: Piece
    is_last: bool


def parts(transaction: Transaction) -> Iterable[Part]:
    """Yield a transaction in parts of the size of a batch; one without changes is one empty part."""
    small = transaction.changes.as_one(BATCH_ROWS, BATCH_BYTES)
    return [Part(transaction, small, is_last=True)] if small else _parts(transaction)


def _parts(transaction: Transaction) -> Iterator[Part]:
    held: Piece | None = None
    for piece in transaction.changes.pieces(BATCH_ROWS, BATCH_BYTES):
        if held is not None:
            yield Part(transaction, held, is_last=False)
        held = piece
    yield Part(transaction, held or Piece({}, []), is_last=True)


def widened(xid: int, near: int) -> int:
    """Return the 64-bit transaction id with these lower 32 bits that is nearest to another one."""
    return xid + ((near - xid + (1 << 31)) >> 32 << 32)


@dataclass
class BufferWriter:
    """The buffers of all sources that are captured from one slot."""

    conn: Connection
    slot: str
    epoch: int
    watermarks: dict[int, Watermark]
    ledger: Ledger
    sources: dict[int, Source] = field(default_factory=dict)
    routes: dict[int, int] = field(default_factory=dict)
    """The source of each table that is a source or a partition of one."""
    unknown: set[int] = field(default_factory=set)
    """Published tables that belong to no source, when this batch looked; their rows are ignored."""
    written: int = 0
    """How many rows and marks this writer has written."""
    unfinished: tuple[int, dict[int, int]] = (0, {})
    """The transaction that is stored in part: the LSN of its commit, and by source the number of
    changes stored.
    """

    @classmethod
    def claimed(
        cls, conn: Connection, slot: str, owner: str, *, take_over: bool = True
    ) -> BufferWriter:
        """Claim the slot for this process: take it over from another one, or return without it."""
        epoch = slots.claim(conn, slot, owner, take_over=take_over)
        # Read after the claim, which has waited for another writer that may have moved the cursor.
        found = slots.get(conn, slot)
        if found is None:
            raise SlotLost.because(slot, "It is not in the catalog of this database.")
        if epoch is None:
            raise WalTakenOver.by_other(slot)
        writer = cls(
            conn, slot, epoch, slots.watermarks(conn, slot), Ledger.starting_at(found.cursor, ())
        )
        writer.look()
        return writer

    def look(self) -> None:
        """Read from the catalog the sources that are captured from WAL, with their captured
        columns.
        """
        self.unknown = set()
        found = {source.relid: source for source in sources.every(self.conn) if source.uses_wal}
        if found != self.sources:
            self.sources = found
            for gone in self.ledger.buffers.keys() - found.keys():
                self.ledger = self.ledger.leave(gone)
            for relid in found:
                self.ledger = self.ledger.join(relid)
            self.routes = {relid: relid for relid in found}
            self.routes |= {
                partition: source.relid
                for source in found.values()
                for partition in source.partitions
            }

    def write(
        self, batch: Sequence[Part], marker: int = 0, progress: Progress = NO_PROGRESS
    ) -> int:
        """Write a batch, and the marker after it, in one transaction; return the new cursor.

        Only its last part may belong to a transaction that continues.
        """
        try:
            self._write(batch, marker, progress, careful=False)
        except UNREADABLE as error:
            log.warning(
                "a value from WAL could not be parsed", slot=self.slot, error=str(error).strip()
            )
            self._write(batch, marker, progress, careful=True)
        failpoint("wal_durable")
        return self.ledger.acknowledged

    def _write(
        self, batch: Sequence[Part], marker: int, progress: Progress, *, careful: bool
    ) -> None:
        with self.conn.transaction():
            self.look()
            ledger = self._after(batch, marker)
            near = slots.advance(self.conn, self.slot, self.epoch, ledger.acknowledged, progress)
            if near is None:
                raise WalTakenOver.by_other(self.slot)
            writing = _BatchWriting(self, batch, near, careful)
            writing.run()
            if writing.watermarks:
                slots.put_watermarks(self.conn, self.slot, writing.watermarks)
            failpoint("wal_stored")
        self.ledger = ledger
        self.watermarks |= writing.watermarks
        ends_open = bool(batch) and not batch[-1].is_last
        self.unfinished = (
            (batch[-1].transaction.commit_lsn, writing.counts) if ends_open else (0, {})
        )
        self.written += writing.written

    def _after(self, batch: Sequence[Part], marker: int) -> Ledger:
        """Return the ledger after this batch is durable."""
        ledger = self.ledger
        whole = max((part.transaction.end_lsn for part in batch if part.is_last), default=0)
        for relid in ledger.buffers:
            if batch:
                ledger = ledger.handed(relid, batch[-1].transaction.end_lsn)
            ledger = ledger.durable(relid, whole)
        return ledger.reach_marker(max(whole, marker))

    def source_of(self, relid: int) -> int | None:
        """Return the source that a relation's rows belong to; a partition may be new."""
        if relid not in self.routes and relid not in self.unknown:
            partitions = relations.partitions(self.conn, list(self.sources))
            self.routes |= {
                partition: root for root, below in partitions.items() for partition in below
            }
            if relid not in self.routes:
                self.unknown.add(relid)
                log.debug(
                    "ignored rows of a table that is not a source", slot=self.slot, relid=relid
                )
        return self.routes.get(relid)


class _BatchWriting:
    """Writes one batch. The `BufferWriter` is updated only after the commit."""

    def __init__(
        self, writer: BufferWriter, batch: Sequence[Part], near: int, careful: bool
    ) -> None:
        self.writer = writer
        self.batch = batch
        self.careful = careful
        self.xids = [widened(part.transaction.xid, near) for part in batch]
        self.lsns = np.array([part.transaction.commit_lsn for part in batch], np.int64)
        self.watermarks: dict[int, Watermark] = {}
        """The new watermark of each source."""
        self.counts: dict[int, int] = {}
        """By source: the number of changes so far of the transaction that continues."""
        self.marks: dict[int, set[tuple[int, str]]] = {}
        self.written = 0
        if batch and writer.unfinished[0] == batch[-1].transaction.commit_lsn:
            self.counts = dict(writer.unfinished[1])

    def run(self) -> None:
        """Copy the rows that are beyond the watermarks, then insert the marks T and X."""
        for _, group in groupby(enumerate(self.batch), key=lambda each: id(each[1].piece.layouts)):
            numbered = [(number, part) for number, part in group if part.piece.messages]
            if numbered:
                self._group(self._laid_out(numbered))
        for source, marks in self.marks.items():
            self._insert_marks(source, marks)

    def _laid_out(self, numbered: Sequence[tuple[int, Part]]) -> Rows:
        sizes = [len(part.piece.messages) for _, part in numbered]
        return lay_out(
            [message for _, part in numbered for message in part.piece.messages],
            np.repeat([part.transaction.relation_at for _, part in numbered], sizes),
            np.repeat([number for number, _ in numbered], sizes),
            numbered[0][1].piece.layouts,
            self.xids,
        )

    def _group(self, rows: Rows) -> None:
        for number, relid in rows.truncated():
            source = self.writer.source_of(relid)
            if source is not None and self._reach(source, number, 0):
                self.marks.setdefault(source, set()).add((number, "T"))
        changes = rows.changes()
        relids, which = np.unique(changes.relids(), return_inverse=True)
        owners = np.array([self.writer.source_of(int(relid)) or 0 for relid in relids], np.int64)[
            which
        ]
        for owner in np.unique(owners[owners > 0]):
            self._changes(int(owner), changes.at(np.flatnonzero(owners == owner)))

    def _changes(self, source: int, rows: Rows) -> None:
        fresh = rows.at(self._fresh(source, rows.transactions))
        last = int(rows.transactions[-1])
        self._reach(source, last, int(np.count_nonzero(rows.transactions == last)))
        if len(fresh.letters):
            self._copy(source, fresh)

    # -- skipping what is stored ------------------------------------------------------------

    def _fresh(self, source: int, numbers: Offsets) -> Offsets:
        """Return which changes are beyond the watermark, which counts single changes in its own
        transaction only.
        """
        watermark = self.writer.watermarks.get(source, Watermark(0, 0))
        lsns = self.lsns[numbers]
        fresh = lsns > watermark.commit_lsn
        within = np.flatnonzero(lsns == watermark.commit_lsn)
        commit_lsn, counts = self.writer.unfinished
        begun = counts.get(source, 0) if commit_lsn == watermark.commit_lsn else 0
        fresh[within[begun + np.arange(len(within)) >= watermark.ordinal]] = True
        return np.flatnonzero(fresh)

    def _reach(self, source: int, number: int, changes: int) -> bool:
        """Advance the source's watermark; return True if it was behind."""
        part = self.batch[number]
        ordinal = WHOLE
        if not part.is_last:
            ordinal = self.counts[source] = self.counts.get(source, 0) + changes
        reached = Watermark(part.transaction.commit_lsn, ordinal)
        former = self.writer.watermarks.get(source, Watermark(0, 0))
        self.watermarks[source] = max(self.watermarks.get(source, former), reached)
        return former < Watermark(part.transaction.commit_lsn, WHOLE)

    # -- writing ---------------------------------------------------------------------------

    def _copy(self, source: int, rows: Rows) -> None:
        if not self.careful:
            self._send(source, rows)
            return
        try:
            with self.writer.conn.transaction():
                self._send(source, rows)
        except UNREADABLE:
            self._copy_apart(source, rows)

    def _copy_apart(self, source: int, rows: Rows) -> None:
        """Copy by bisection of whole transactions: store those whose values can be parsed, and mark
        the others.
        """
        numbers = rows.transactions
        if numbers[0] == numbers[-1]:
            self.marks.setdefault(source, set()).add((int(numbers[0]), "X"))
            return
        middle = int(np.searchsorted(numbers, numbers[len(numbers) // 2]))
        middle = middle or int(np.searchsorted(numbers, numbers[0], "right"))
        self._copy(source, rows.at(np.arange(middle)))
        self._copy(source, rows.at(np.arange(middle, len(numbers))))

    def _send(self, source: int, rows: Rows) -> None:
        captured = self.writer.sources[source]
        columns = [
            sql.SQL("xid"),
            sql.SQL("action"),
            sql.SQL("origin"),
            *(column_name(column.attnum) for column in captured.columns),
        ]
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(buffer_name(source), listed(columns))
        with self.writer.conn.cursor() as cursor, cursor.copy(statement) as copy:
            # In slabs: the server reads one while we make the next.
            for start in range(0, len(rows.letters), SLAB):
                decoded = decode(
                    rows.at(np.arange(start, min(start + SLAB, len(rows.letters)))), captured
                )
                for images in decoded.images:
                    copy.write(copy_text(images))
                    self.written += len(images.starts)
                self.marks.setdefault(source, set()).update(
                    (number, "X") for number in decoded.marked
                )

    def _insert_marks(self, source: int, marks: set[tuple[int, str]]) -> None:
        insert = sql.SQL(
            'INSERT INTO {} (xid, action, origin) SELECT xid, action, $$l$$ FROM unnest(%s::xid8[], %s::"char"[])'
            " AS m (xid, action)"
        )
        listed = sorted(marks)
        xids, actions = (
            [str(self.xids[number]) for number, _ in listed],
            [action for _, action in listed],
        )
        if listed:
            self.writer.conn.execute(insert.format(buffer_name(source)), (xids, actions))
        self.written += len(listed)
