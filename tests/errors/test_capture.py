"""Errors of change capture: which of them end by themselves, and what each names."""

from __future__ import annotations

from millstream.errors import (
    LockNotHad,
    SlotLost,
    SourceChanged,
    SpillFailed,
    WalBehind,
    WalBroken,
    WalNotUnderstood,
)


def test_trouble_of_the_connection_is_tried_again_and_a_lost_slot_is_not() -> None:
    assert all(kind.retryable for kind in (WalBroken, WalBehind, SpillFailed, LockNotHad))
    assert not SlotLost.retryable
    assert not WalNotUnderstood.retryable


def test_a_source_that_has_changed_is_waited_for() -> None:
    assert SourceChanged.waits
    assert SourceChanged.key("totals", ("id", "day")).detail.startswith("The key is (id, day).")


def test_who_holds_a_lock_is_named_where_it_is_known() -> None:
    held = LockNotHad.somewhere(0.5, ["process 7", "process 9"])
    assert held.message == "could not obtain a lock within 0.5 s"
    assert "process 7, process 9" in held.detail
    assert "has ended since" in LockNotHad.somewhere(2, []).detail


def test_a_message_that_is_not_understood_shows_its_beginning_only() -> None:
    error = WalNotUnderstood.at(b"X" * 4000, "no such letter")
    assert "4000 bytes" in error.detail
    assert len(error.detail) < 150
