"""From messages to transactions: whole, in chunks, with sub-transactions taken back, larger than
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.wal.messages.protocol import (
    HEADER,
    Begin,
    Commit,
    Insert,
    LogicalMessage,
    Parsed,
    RelationColumn,
    RelationMessage,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Unknown,
    parse,
)
from millstream.capture.wal.messages.transactions import Assembler, Transaction
from millstream.errors import WalNotUnderstood
from millstream.testing.pgoutput import encode, frame

T = RelationMessage(7, "public", "t", "f", (RelationColumn("v", 25, -1, True),))
WIDER = RelationMessage(
    7, "public", "t", "f", (RelationColumn("v", 25, -1, True), RelationColumn("w", 25, -1, True))
)


def row(text: str) -> Insert:
    return Insert(7, (text.encode(),))


def feed(
    assembler: Assembler, messages: Sequence[Parsed | tuple[int, Parsed]]
) -> list[Transaction | LogicalMessage]:
    """Send these; a pair is a message of a (sub)transaction in a chunk. Give what was completed."""
    done = []
    for each in messages:
        xid, message = each if isinstance(each, tuple) else (None, each)
        completed = assembler.take(frame(encode(message, xid)))
        done += [completed] if completed else []
    return done


def texts(
    transaction: Transaction | LogicalMessage, rows: int = 1000, size: int = 1 << 20
) -> list[str]:
    """The values in a transaction's rows, and `|` where the layouts change."""
    assert isinstance(transaction, Transaction)
    found: list[str] = []
    layouts = None
    for piece in transaction.changes.pieces(rows, size):
        if layouts is not None and piece.layouts != layouts:
            found.append("|")
        layouts = piece.layouts
        for message in piece.messages:
            parsed = parse(message, at=HEADER, in_chunk=transaction.relation_at > HEADER + 1)
            assert isinstance(parsed, Insert)
            assert isinstance(parsed.new[0], bytes)
            found.append(parsed.new[0].decode())
    return found


# -- whole -----------------------------------------------------------------------------------


def test_a_transaction_is_given_when_it_commits() -> None:
    assembler = Assembler()
    assert feed(assembler, [Begin(50, 3), T, row("a"), row("b")]) == []
    assert not assembler.is_between
    (done,) = feed(assembler, [Commit(50, 60)])
    assert isinstance(done, Transaction)
    assert (done.xid, done.commit_lsn, done.end_lsn, texts(done)) == (3, 50, 60, ["a", "b"])
    assert (assembler.is_between, assembler.size) == (True, 0)


def test_layouts_hold_for_the_transactions_after_them() -> None:
    assembler = Assembler()
    feed(assembler, [Begin(50, 3), T, row("a"), Commit(50, 60)])
    (done,) = feed(assembler, [Begin(70, 4), row("b"), Commit(70, 80)])
    assert isinstance(done, Transaction)
    assert [piece.layouts for piece in done.changes.pieces(10, 1000)] == [{7: T}]


def test_a_layout_that_changes_on_the_way_splits_the_transaction() -> None:
    assembler = Assembler()
    (done,) = feed(
        assembler, [Begin(50, 3), T, row("a"), T, row("b"), WIDER, row("c"), Commit(50, 60)]
    )
    assert texts(done) == ["a", "b", "|", "c"]
    assert assembler.layouts == {7: WIDER}


def test_messages_come_with_their_transaction_or_at_once() -> None:
    told = LogicalMessage(True, 55, "millstream", b"x")
    aside = LogicalMessage(False, 55, "millstream", b"y")
    first, second = feed(Assembler(), [aside, Begin(50, 3), told, Commit(50, 60)])
    assert first == aside
    assert isinstance(second, Transaction)
    assert second.messages == (told,)


def test_what_is_unknown_is_passed_over_and_what_is_out_of_place_is_an_error() -> None:
    assert feed(Assembler(), [Unknown("?"), StreamAbort(9, 9), StreamAbort(9, 10)]) == []
    for stray in (row("a"), T, Commit(50, 60), StreamCommit(9, 50, 60)):
        with pytest.raises(WalNotUnderstood):
            feed(Assembler(), [stray])


# -- in chunks -------------------------------------------------------------------------------


def test_chunks_of_several_transactions_take_turns() -> None:
    assembler = Assembler()
    first, second, third = feed(
        assembler,
        [
            StreamStart(3, True), (3, T), (3, row("a")), StreamStop(),
            StreamStart(4, True), (4, T), (4, row("x")), StreamStop(),
            Begin(40, 5), T, row("small"), Commit(40, 45),
            StreamStart(3, False), (3, row("b")), StreamStop(),
            StreamCommit(4, 50, 60),
            StreamCommit(3, 70, 80),
        ],
    )  # fmt: skip
    assert [texts(each) for each in (first, second, third)] == [["small"], ["x"], ["a", "b"]]
    assert assembler.size == 0
    assert assembler.is_between


def test_a_keepalive_between_chunks_may_pass() -> None:
    assembler = Assembler()
    feed(assembler, [StreamStart(3, True), (3, T), (3, row("a"))])
    assert not assembler.is_between
    feed(assembler, [StreamStop()])
    assert assembler.is_between


def test_an_aborted_sub_transaction_takes_back_its_rows_and_no_others() -> None:
    (done,) = feed(
        Assembler(),
        [
            StreamStart(3, True), (3, T), (3, row("a")), (4, row("b")), (5, row("c")), (4, row("d")), StreamStop(),
            StreamAbort(3, 5), StreamAbort(3, 4),
            StreamStart(3, False), (3, row("e")), (6, row("f")), StreamStop(),
            StreamAbort(3, 99), StreamAbort(3, 5),
            StreamCommit(3, 50, 60),
        ],
    )  # fmt: skip
    assert texts(done) == ["a", "e", "f"]


def test_a_layout_sent_in_an_aborted_subtransaction_remains_valid() -> None:
    assembler = Assembler()
    (done,) = feed(
        assembler,
        [
            StreamStart(3, True), (4, T), (4, row("a")), StreamStop(), StreamAbort(3, 4),
            StreamStart(3, False), (3, row("b")), StreamStop(), StreamCommit(3, 50, 60),
        ],
    )  # fmt: skip
    assert isinstance(done, Transaction)
    assert [piece.layouts for piece in done.changes.pieces(10, 1000)] == [{7: T}]
    assert assembler.layouts == {7: T}


def test_an_aborted_transaction_is_gone_with_its_layouts() -> None:
    assembler = Assembler()
    done = feed(
        assembler, [StreamStart(3, True), (3, T), (3, row("a")), StreamStop(), StreamAbort(3, 3)]
    )
    assert (done, assembler.size, assembler.layouts) == ([], 0, {})


# -- larger than memory ----------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 100, 400, 10_000])
def test_what_exceeds_the_budget_goes_to_disk_and_comes_back(budget: int) -> None:
    assembler = Assembler(budget)
    values = [str(number) for number in range(30)]
    (done,) = feed(
        assembler, [Begin(50, 3), T, *map(row, values), WIDER, row("last"), Commit(50, 60)]
    )
    assert isinstance(done, Transaction)
    assert (done.changes.on_disk > 0) == (budget < 1000)
    assert done.changes.size <= budget
    for rows, size in ((1000, 1 << 20), (7, 1 << 20), (1000, 100)):
        assert texts(done, rows, size) == [*values, "|", "last"]
    assert all(len(piece.messages) <= 7 for piece in done.changes.pieces(7, 1 << 20))


def test_of_several_open_transactions_the_largest_goes_to_disk() -> None:
    assembler = Assembler(240)
    feed(
        assembler,
        [StreamStart(3, True), (3, T), *((3, row("x" * 30)) for _ in range(3)), StreamStop()],
    )
    large, small = feed(
        assembler,
        [
            StreamStart(4, True),
            (4, T),
            (4, row("y")),
            StreamStop(),
            StreamCommit(3, 50, 60),
            StreamCommit(4, 70, 80),
        ],
    )
    assert isinstance(large, Transaction)
    assert isinstance(small, Transaction)
    assert (large.changes.on_disk, small.changes.on_disk) == (3, 0)


@dataclass
class Model:
    """A transaction with nested sub-transactions, as the server keeps it."""

    sent: list[Parsed | tuple[int, Parsed]] = field(
        default_factory=lambda: [StreamStart(3, True), (3, T)]
    )
    materialized: list[tuple[int, str]] = field(default_factory=list)
    stack: list[int] = field(default_factory=lambda: [3])
    families: dict[int, list[int]] = field(default_factory=dict)
    """Each sub-transaction that is open, with those below it that have been released."""
    next: int = 4

    def do(self, step: str) -> None:
        if step == "write":
            self.materialized.append((self.stack[-1], str(len(self.sent))))
            self.sent.append((self.stack[-1], row(self.materialized[-1][1])))
        elif step == "open":
            self.stack.append(self.next)
            self.families[self.next] = [self.next]
            self.next += 1
        elif len(self.stack) > 1:
            sub = self.stack.pop()
            family = self.families.pop(sub)
            if step == "release":
                self.families.setdefault(self.stack[-1], [self.stack[-1]]).extend(family)
            else:
                self.materialized = [
                    (xid, text) for xid, text in self.materialized if xid not in family
                ]
                # Children first, then the sub-transaction itself, as the server does.
                ends = [StreamAbort(3, each) for each in [*family[1:], family[0]]]
                self.sent += [StreamStop(), *ends, StreamStart(3, False)]


STEPS = st.lists(st.sampled_from(["write", "write", "open", "release", "abort"]), max_size=60)


@given(STEPS, st.sampled_from([0, 99, 1 << 20]))
def test_any_nesting_leaves_what_was_not_taken_back(steps: list[str], budget: int) -> None:
    model = Model()
    for step in steps:
        model.do(step)
    (done,) = feed(Assembler(budget), [*model.sent, StreamStop(), StreamCommit(3, 50, 60)])
    assert texts(done) == [text for _, text in model.materialized]
