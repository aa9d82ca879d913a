"""Errors of a refresh: which are tried again, which are no failure at all."""

from __future__ import annotations

import pytest

from millstream.errors import (
    Busy,
    Cancelled,
    Conflict,
    Deposed,
    LockTableFull,
    MillstreamError,
    ProcessEnded,
    RecursionTooDeep,
    RefreshFailed,
    ServerTrouble,
    ValueOutOfRange,
)


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        (Busy, True), (Conflict, True), (LockTableFull, True), (Cancelled, True), (ServerTrouble, True),
        (Deposed, True), (ProcessEnded, True), (RefreshFailed, False), (ValueOutOfRange, False),
        (RecursionTooDeep, False),
    ],
)  # fmt: skip
def test_what_can_end_by_itself_is_tried_again(
    kind: type[MillstreamError], retryable: bool
) -> None:
    assert kind.retryable is retryable


def test_only_a_stream_table_in_use_is_skipped_without_a_failure() -> None:
    kinds = (Conflict, LockTableFull, Cancelled, ServerTrouble, Deposed, RefreshFailed)
    assert Busy.skips
    assert not any(kind.skips for kind in kinds)


def test_the_wait_is_reported_if_there_was_one() -> None:
    assert (
        Busy.working_on("totals", None).detail
        == "The lock is held by a session that has just ended."
    )
    assert Busy.working_on("totals", "process 7", 1.5).detail.endswith(
        "Millstream waited 1.5 s for it."
    )


def test_a_full_lock_table_says_what_to_set() -> None:
    error = LockTableFull.by_graph(["a", "b"], locks=900, room=300, setting=64, needed=256)
    assert "one of 2 stream tables" in error.detail
    assert "max_locks_per_transaction to 256 or more (it is 64)" in error.hint


def test_trouble_of_the_server_may_come_without_a_remedy() -> None:
    assert ServerTrouble.of("totals", "disk full", "No space.", "").hint.endswith(
        "never suspends it."
    )
    assert ServerTrouble.of("totals", "disk full", "No space.", "Make room.").hint.endswith(
        "Make room."
    )
