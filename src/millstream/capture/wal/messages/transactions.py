"""Assemble messages into committed transactions, in commit order.

    B  I U D T M ..  C          protocol 1: one transaction after the other, each complete
    S .. E   S .. E   c         protocol 2: large ones also in chunks, before they commit; chunks of
                 A              several alternate, and a subtransaction may be aborted

Rows stay in the bytes that were received. Only the Relation message before a row defines its
columns: the server's catalog may have changed since. The server sends the layouts again for a
transaction in chunks; when it commits, these layouts apply to all transactions.

Memory is bounded: if the open transactions have more bytes than the budget, the largest is spilled
to disk.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.capture.wal.messages import protocol
from millstream.capture.wal.messages.protocol import (
    HEADER,
    Begin,
    Commit,
    LogicalMessage,
    RelationMessage,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
)
from millstream.capture.wal.messages.spill import Layouts, SpilledChanges
from millstream.errors import WalNotUnderstood

_CHANGES = frozenset(b"IUDT")
BUDGET = 64 << 20


@dataclass(frozen=True)
class Transaction:
    """A committed transaction."""

    xid: int
    """The lower 32 bits of the top-level transaction id."""
    commit_lsn: int
    """Start of its commit record, by which transactions are ordered."""
    end_lsn: int
    """End of that record: the position to acknowledge once the transaction is durable."""
    changes: SpilledChanges
    relation_at: int = HEADER + 1
    """Offset of the relation's oid in a message."""
    messages: tuple[LogicalMessage, ...] = ()

    def __post_init__(self) -> None:
        if self.end_lsn <= self.commit_lsn:
            raise ValueError("a commit record has an end after its start")


@dataclass
class _OpenTransaction:
    """A transaction that has neither committed nor aborted."""

    xid: int
    changes: SpilledChanges
    messages: tuple[LogicalMessage, ...] = ()
    own_layouts: Layouts | None = None
    """The layouts sent for this transaction alone, if it is streamed."""


class Assembler:
    """Assembles messages into transactions."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.layouts: Layouts = {}
        self.size = 0
        """Number of bytes of open transactions in memory."""
        self._streamed: dict[int, _OpenTransaction] = {}
        self._now: _OpenTransaction | None = None
        self._in_chunk = False

    @property
    def is_between(self) -> bool:
        """True if no transaction is partly received.

        Chunks do not count: they can be sent again.
        """
        return self._now is None

    def take(self, frame: bytes) -> Transaction | LogicalMessage | None:
        """Take one `w` frame; return what it completes: a transaction, or a message that belongs to
        none.
        """
        if frame[HEADER] not in _CHANGES:
            return self._other(frame)
        if self._now is None:
            raise WalNotUnderstood.at(frame[HEADER:], "a change outside of any transaction")
        changes = self._now.changes
        if self._in_chunk:
            changes.open_sub(int.from_bytes(frame[HEADER + 1 : HEADER + 5], "big"))
        # Inline: a function call for each row would be a large part of the cost of reading.
        changes.tail.append(frame)
        changes.size += len(frame)
        self.size += len(frame)
        if self.size > self.budget:
            self._spill()
        return None

    def close(self) -> None:
        """Drop the open transactions, which the server will send again."""
        for each in [*self._streamed.values(), *([self._now] if self._now else [])]:
            each.changes.close()
        self._streamed, self._now, self._in_chunk, self.size = {}, None, False, 0

    # -- the other messages ----------------------------------------------------------------

    def _other(self, frame: bytes) -> Transaction | LogicalMessage | None:
        match protocol.parse(frame, at=HEADER, in_chunk=self._in_chunk):
            case Begin(_, xid):
                self._now = _OpenTransaction(xid, SpilledChanges([(0, self.layouts)]))
            case Commit(commit_lsn, end_lsn):
                return self._commit(self._current(frame), commit_lsn, end_lsn)
            case RelationMessage() as relation:
                self._relayout(self._current(frame), relation)
            case LogicalMessage() as message:
                return self._message(message)
            case StreamStart(xid):
                self._in_chunk = True
                self._now = self._streamed.setdefault(
                    xid, _OpenTransaction(xid, SpilledChanges([(0, {})]), own_layouts={})
                )
            case StreamStop():
                self._now, self._in_chunk = None, False
            case StreamCommit(xid, commit_lsn, end_lsn):
                return self._stream_commit(frame, xid, commit_lsn, end_lsn)
            case StreamAbort(xid, subxid):
                self._abort(xid, subxid)
        return None

    def _current(self, frame: bytes) -> _OpenTransaction:
        if self._now is None:
            raise WalNotUnderstood.at(frame[HEADER:], "it belongs to no transaction")
        return self._now

    def _relayout(self, now: _OpenTransaction, relation: RelationMessage) -> None:
        known = self.layouts if now.own_layouts is None else now.own_layouts
        # Sent again after each reconnect and in each streamed transaction, and mostly unchanged.
        if known.get(relation.relid) == relation:
            return
        layouts = {**known, relation.relid: relation}
        now.changes.relayout(layouts)
        if now.own_layouts is None:
            self.layouts = layouts
        else:
            now.own_layouts = layouts

    def _message(self, message: LogicalMessage) -> LogicalMessage | None:
        if not message.is_transactional:
            return message
        if self._now is not None:
            self._now.messages += (message,)
        return None

    def _commit(self, now: _OpenTransaction, commit_lsn: int, end_lsn: int) -> Transaction:
        self._now = None
        self.size -= now.changes.size
        return Transaction(now.xid, commit_lsn, end_lsn, now.changes, messages=now.messages)

    # -- transactions in chunks ------------------------------------------------------------

    def _stream_commit(self, frame: bytes, xid: int, commit_lsn: int, end_lsn: int) -> Transaction:
        now = self._streamed.pop(xid, None)
        if now is None:
            raise WalNotUnderstood.at(
                frame[HEADER:], "the end of a transaction that was never begun"
            )
        self.size -= now.changes.size
        self.layouts = {**self.layouts, **(now.own_layouts or {})}
        return Transaction(xid, commit_lsn, end_lsn, now.changes, HEADER + 5, now.messages)

    def _abort(self, xid: int, subxid: int) -> None:
        """Remove an aborted transaction or subtransaction, if it was streamed."""
        now = self._streamed.get(xid)
        if now is None:
            return
        before = now.changes.size
        if subxid == xid:
            del self._streamed[xid]
            now.changes.close()
            self.size -= before
        else:
            now.changes.abort_sub(subxid)
            self.size -= before - now.changes.size

    def _spill(self) -> None:
        largest = max(
            [*self._streamed.values(), *([self._now] if self._now else [])],
            key=lambda each: each.changes.size,
        )
        self.size -= largest.changes.size
        largest.changes.spill()
