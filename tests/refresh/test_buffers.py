"""The buffers at a cut: which session reads a slice, and that a slice of WAL is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.catalog.sources import Cutover, Source
from millstream.errors import WalBehind
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection
from millstream.refresh.buffers import Buffers

OLD, END = Snapshot(10, 10), Snapshot(30, 30)
SOURCES = {
    1: Source(1, "public", "triggered", "TRIGGER", ()),
    2: Source(2, "public", "logged", "WAL", (), cutovers=(Cutover(Snapshot(5, 5), "l"),)),
}


def buffers(conn: Connection) -> Buffers:
    return Buffers(conn, END, SOURCES)


def test_wal_is_waited_for_only_if_a_slice_needs_it(conn: Connection) -> None:
    asked = list[str]()
    # Any: the session is not used.
    session: Any = object()

    def reach() -> Any:
        asked.append("waited")
        return session

    found = buffers(conn)
    found.reach([(1, OLD)], reach)
    assert (asked, found.wal) == ([], None)
    found.reach([(1, OLD), (2, OLD)], reach)
    assert (asked, found.wal) == (["waited"], session)


def test_if_wal_is_behind_only_its_readers_wait(conn: Connection) -> None:
    def behind() -> Connection:
        raise WalBehind.after(5, "It is slow.")

    found = buffers(conn)
    found.reach([(2, OLD)], behind)
    assert found.lacks(1, OLD) is None
    assert isinstance(found.lacks(2, OLD), WalBehind)


def test_rows_beyond_the_cut_are_left_for_the_next_one(conn: Connection) -> None:
    """A session beside the cut sees more than the cut does."""
    found = buffers(conn)
    found.reach([(2, OLD)], lambda: conn)
    _, triggered = found.slice(1, OLD)
    reader, logged = found.slice(2, OLD)
    assert reader is conn
    assert str(END) not in triggered.as_string()
    assert str(END) in logged.as_string()


def test_a_slice_of_wal_cannot_be_read_before_it_was_waited_for(conn: Connection) -> None:
    with pytest.raises(AssertionError, match="waited for"):
        buffers(conn).slice(2, OLD)
