"""The queue between reader and store: order, markers, its bound, and closing."""

from __future__ import annotations

from threading import Event, Thread

from millstream.capture.wal.inbox import OVERHEAD, Inbox, Marker
from millstream.capture.wal.messages.spill import SpilledChanges
from millstream.capture.wal.messages.transactions import Transaction


def transaction(number: int) -> Transaction:
    return Transaction(number, 10 * number, 10 * number + 1, SpilledChanges([(0, {})]))


def take(inbox: Inbox) -> list[Transaction | Marker]:
    return inbox.take(changes=1, linger=0.0, wait=0.0)


def test_items_come_out_in_order_and_a_marker_replaces_only_the_marker_before_it() -> None:
    inbox = Inbox(1 << 20, Event())
    first, second = transaction(1), transaction(2)
    inbox.put(first)
    inbox.put_marker(11)
    inbox.put_marker(12)
    inbox.put(second)
    inbox.put_marker(21)
    assert take(inbox) == [first, Marker(12), second, Marker(21)]
    assert take(inbox) == []
    assert inbox.size == 0


def test_a_full_inbox_makes_the_reader_wait_until_it_is_emptied() -> None:
    inbox = Inbox(OVERHEAD, Event())
    inbox.put(transaction(1))
    reader = Thread(target=inbox.put, args=(transaction(2),), daemon=True)
    reader.start()
    reader.join(0.2)
    assert reader.is_alive()
    assert [item.xid for item in take(inbox) if isinstance(item, Transaction)] == [1]
    reader.join(10)
    assert not reader.is_alive()
    assert [item.xid for item in take(inbox) if isinstance(item, Transaction)] == [2]


def test_a_closed_inbox_gives_nothing_and_holds_nobody() -> None:
    inbox = Inbox(OVERHEAD, Event())
    inbox.put(transaction(1))
    inbox.close()
    inbox.put(transaction(2))
    assert inbox.take(changes=1, linger=60.0, wait=60.0) == []
