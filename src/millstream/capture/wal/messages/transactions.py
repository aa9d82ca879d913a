"""From messages to committed transactions, in the order of their commits.

    B  I U D T M ..  C          protocol 1: one transaction after the other, each whole
    S .. E   S .. E   c         protocol 2: large ones also in chunks, before they end; chunks of several take turns,
                 A              and what a sub-transaction did may be taken back

Rows are kept as the bytes they came in. What a row looks like is told by the Relation message before it and by nothing
else: the server's catalog may have moved on. A transaction streamed in chunks is told the layouts anew; when it
commits, the server takes them as told for all.

Memory is bounded: when the open transactions hold more than the budget, the largest goes to disk.
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
    """Of the top level, its lower 32 bits."""
    commit_lsn: int
    """Where its commit record starts: its place in the order of all."""
    end_lsn: int
    """Where that record ends: what is acknowledged once the transaction is durable."""
    changes: SpilledChanges
    relation_at: int = HEADER + 1
    """Where in a message the relation's oid stands."""
    messages: tuple[LogicalMessage, ...] = ()

    def __post_init__(self) -> None:
        if self.end_lsn <= self.commit_lsn:
            raise ValueError("a commit record has an end after its start")


@dataclass
class _OpenTransaction:
    """A transaction whose end has not come."""

    xid: int
    changes: SpilledChanges
    messages: tuple[LogicalMessage, ...] = ()
    told: Layouts | None = None
    """The layouts told to this transaction alone."""


class Assembler:
    """Takes messages, gives transactions."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.layouts: Layouts = {}
        self.size = 0
        """Bytes of open transactions in memory."""
        self._streamed: dict[int, _OpenTransaction] = {}
        self._now: _OpenTransaction | None = None
        self._in_chunk = False

    @property
    def is_between(self) -> bool:
        """Is nothing half received? Chunks received so far are sent again if need be: their commit is to come."""
        return self._now is None

    def take(self, frame: bytes) -> Transaction | LogicalMessage | None:
        """Take one `w` frame; give what it completes: a transaction, or a message that belongs to none."""
        if frame[HEADER] not in _CHANGES:
            return self._other(frame)
        if self._now is None:
            raise WalNotUnderstood.at(frame[HEADER:], "a change outside of any transaction")
        changes = self._now.changes
        if self._in_chunk:
            changes.open_sub(int.from_bytes(frame[HEADER + 1 : HEADER + 5], "big"))
        # In place: a call for each row would be a good part of what reading costs.
        changes.tail.append(frame)
        changes.size += len(frame)
        self.size += len(frame)
        if self.size > self.budget:
            self._spill()
        return None

    def close(self) -> None:
        """Forget what is open: it will be sent again."""
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
                self._now = self._streamed.setdefault(xid, _OpenTransaction(xid, SpilledChanges([(0, {})]), told={}))
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
        known = self.layouts if now.told is None else now.told
        # Told again after each reconnect and in each streamed transaction: mostly nothing new.
        if known.get(relation.relid) == relation:
            return
        layouts = {**known, relation.relid: relation}
        now.changes.relayout(layouts)
        if now.told is None:
            self.layouts = layouts
        else:
            now.told = layouts

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
            raise WalNotUnderstood.at(frame[HEADER:], "the end of a transaction that was never begun")
        self.size -= now.changes.size
        self.layouts = {**self.layouts, **(now.told or {})}
        return Transaction(xid, commit_lsn, end_lsn, now.changes, HEADER + 5, now.messages)

    def _abort(self, xid: int, subxid: int) -> None:
        """Of one that was never streamed to us nothing is known, and nothing need be taken back."""
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
            [*self._streamed.values(), *([self._now] if self._now else [])], key=lambda each: each.changes.size
        )
        self.size -= largest.changes.size
        largest.changes.spill()
