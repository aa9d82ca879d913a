"""Rows of the replication slot: the cursor goes forward only, and only for the process that has the
slot.
"""

from __future__ import annotations

import time

import pytest

from millstream import Millstream
from millstream.catalog import slots, sources
from millstream.catalog.installation import install
from millstream.catalog.slots import NO_PROGRESS, WHOLE, Interruption, Slot, Watermark
from millstream.postgres.connection import Connection

SLOT = Slot("s", "p", 5, 6, "7", 1, created_lsn=10, cursor=20)


@pytest.fixture
def recorded(conn: Connection) -> Connection:
    """A connection to a catalog that has the slot."""
    install.install(conn)
    slots.put(conn, SLOT)
    return conn


def test_a_slot_is_read_back_as_it_was_recorded_until_it_is_removed(recorded: Connection) -> None:
    assert slots.get(recorded, "s") == SLOT
    slots.remove(recorded, "s")
    assert slots.get(recorded, "s") is None


def test_the_cursor_never_goes_back(recorded: Connection) -> None:
    epoch = slots.claim(recorded, "s", "me", take_over=True)
    assert epoch is not None
    for position, cursor in ((30, 30), (25, 30), (31, 31)):
        assert slots.advance(recorded, "s", epoch, position, NO_PROGRESS) is not None
        found = slots.get(recorded, "s")
        assert found is not None
        assert found.cursor == cursor


def test_whoever_has_lost_the_slot_moves_nothing(recorded: Connection) -> None:
    first = slots.claim(recorded, "s", "me", take_over=True)
    second = slots.claim(recorded, "s", "other", take_over=True)
    assert first is not None
    assert second is not None
    assert slots.advance(recorded, "s", first, 99, NO_PROGRESS) is None
    assert slots.get(recorded, "s") == SLOT
    assert slots.claim(recorded, "s", "me", take_over=False) is None
    assert slots.claim(recorded, "nosuch", "me", take_over=True) is None


def test_interruptions_add_up(recorded: Connection) -> None:
    epoch = slots.claim(recorded, "s", "me", take_over=True)
    assert epoch is not None
    for reason in ("reset", "timeout"):
        slots.note_interruption(recorded, "s", epoch, Interruption(reason, 2, time.monotonic()))
    row = recorded.execute("SELECT to_jsonb(s) FROM millstream.slots AS s").fetchall()[0][0]
    assert 4 in row.values()
    assert "timeout" in row.values()


def test_each_source_has_the_watermark_that_was_put_last(unfilled: Millstream) -> None:
    conn = unfilled.app.conn
    slots.put(conn, SLOT)
    [relid] = [source.relid for source in sources.every(conn)]
    assert slots.watermarks(conn, "s") == {}
    for mark in (Watermark(12, 3), Watermark(15, WHOLE)):
        slots.put_watermarks(conn, "s", {relid: mark})
        assert slots.watermarks(conn, "s") == {relid: mark}
    assert Watermark(12, 3) < Watermark(12, WHOLE) < Watermark(15, 0)
