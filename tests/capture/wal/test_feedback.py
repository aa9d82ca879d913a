"""The position that is told to the server never goes back, and is told at least every interval."""

from __future__ import annotations

import time

import pytest

from millstream.capture.wal.feedback import Feedback
from millstream.errors import WalBroken
from millstream.testing.waiting import wait_until


class Line:
    """A double of the replication connection: notes what is sent."""

    def __init__(self, received_at: float = float("inf")) -> None:
        self.received_at = received_at
        self.sent: list[tuple[int, bool]] = []

    def send(self, position: int, *, ask: bool = False) -> None:
        self.sent.append((position, ask))


def test_the_last_position_is_sent_before_the_thread_ends() -> None:
    feedback = Feedback(line := Line(), 5, interval=3600.0)
    feedback.advance(9)
    feedback.start()
    feedback.stop()
    assert (line.sent[-1], feedback.sent) == ((9, False), 9)


def test_an_earlier_position_is_ignored() -> None:
    feedback = Feedback(line := Line(), 5, interval=3600.0)
    feedback.advance(9)
    feedback.advance(7)
    feedback.start()
    feedback.stop()
    assert {position for position, _ in line.sent} == {9}


def test_without_news_the_position_is_repeated() -> None:
    feedback = Feedback(line := Line(), 5, interval=0.01)
    feedback.start()
    assert wait_until(lambda: len(line.sent) > 2, seconds=90)
    feedback.stop()
    assert set(line.sent) == {(5, False)}


@pytest.mark.parametrize(("received_at", "ask"), [(float("-inf"), True), (float("inf"), False)])
def test_a_server_that_was_silent_is_asked_to_answer(received_at: float, ask: bool) -> None:
    feedback = Feedback(line := Line(received_at), 5, interval=3600.0)
    feedback.start()
    feedback.reply()
    assert wait_until(lambda: line.sent, seconds=90)[0] == (5, ask)
    feedback.stop()


def test_a_broken_connection_ends_the_thread_and_nothing_else() -> None:
    class Broken(Line):
        def send(self, position: int, *, ask: bool = False) -> None:
            super().send(position, ask=ask)
            raise WalBroken.off("slot", "gone")

    feedback = Feedback(line := Broken(), 5, interval=0.001)
    feedback.start()
    assert wait_until(lambda: not feedback._thread.is_alive(), seconds=90)
    assert len(line.sent) == 1
    feedback.stop()
    assert line.received_at > time.monotonic()
