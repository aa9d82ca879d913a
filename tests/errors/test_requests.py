"""Errors about requests to the service."""

from __future__ import annotations

from millstream.errors import (
    NoSuchRequest,
    NotVisibleYet,
    RequestInterrupted,
    RequestNotDone,
    TooManyRequests,
)


def test_a_request_that_is_not_done_is_not_lost() -> None:
    error = RequestNotDone.within(12, 60.0, "RUNNING")
    assert error.message == "request 12 is not done after 60 seconds"
    assert "CALL millstream.wait_for(12)" in error.hint
    assert (error.id, error.status) == (12, "RUNNING")


def test_waiting_longer_helps_and_asking_again_for_what_is_gone_does_not() -> None:
    assert all(kind.retryable for kind in (RequestNotDone, TooManyRequests, NotVisibleYet))
    assert not NoSuchRequest.retryable
    assert not RequestInterrupted.retryable


def test_the_texts_of_the_server_are_unchanged() -> None:
    error = TooManyRequests.of("role has 100 requests", "Wait.")
    assert str(error) == "role has 100 requests [MS503]\nHINT: Wait."
