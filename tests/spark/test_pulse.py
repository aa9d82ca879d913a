"""A Java that does not answer is told from one that is ending; `test_session.py` stops a real one."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from threading import Thread

import pytest

from millstream.spark import pulse
from millstream.spark.pulse import Address, hangs
from millstream.testing.waiting import wait_until


def listening() -> socket.socket:
    line = socket.create_server(("127.0.0.1", 0))
    line.settimeout(60)
    return line


def address(line: socket.socket) -> Address:
    return Address("127.0.0.1", line.getsockname()[1], "secret")


def asked(act: Callable[[socket.socket], None]) -> bool:
    """Ask one that does this with the connection."""
    with listening() as line:

        def serve() -> None:
            with line.accept()[0] as connection:
                act(connection)

        thread = Thread(target=serve)
        thread.start()
        try:
            return hangs(address(line), 60)
        finally:
            thread.join()


def test_one_that_answers_or_closes_the_connection_does_not_hang() -> None:
    received = list[bytes]()

    def answer(connection: socket.socket) -> None:
        received.append(connection.recv(100))
        connection.sendall(b"!yv\n")

    assert not asked(answer)
    assert received == [b"A\nsecret\ne\n"]
    assert not asked(lambda connection: None)


def test_one_that_refuses_is_ending_and_one_that_is_silent_hangs() -> None:
    with listening() as line:
        # Accepted by the kernel, as for a process that is stopped.
        assert hangs(address(line), 0.1)
        gone = address(line)
    assert not hangs(gone, 60)


def test_only_a_process_that_hangs_is_killed_and_the_error_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("EVERY", "LIMIT", "AGAIN"):
        monkeypatch.setattr(pulse, name, 0.1)
    told = list[str]()
    with listening() as line, subprocess.Popen(["sleep", "600"]) as java:
        pulse.watch(java, address(line), told.append)
        assert wait_until(lambda: java.poll()) == -9
    assert told == ["It had not answered for 0.2 s."]
    with subprocess.Popen(["sleep", "600"]) as ending:
        with listening() as line:
            refusing = address(line)
        pulse.watch(ending, refusing, told.append)
        ending.terminate()
        assert ending.wait(60) == -15
    assert len(told) == 1


def test_a_process_that_answers_the_second_question_is_not_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was stopped together with this process, as when a machine sleeps."""
    monkeypatch.setattr(pulse, "EVERY", 0.01)
    asked = list[float]()

    def answers_second(address: Address, seconds: float) -> bool:
        asked.append(seconds)
        return seconds == pulse.LIMIT

    monkeypatch.setattr(pulse, "hangs", answers_second)
    told = list[str]()
    with subprocess.Popen(["sleep", "600"]) as java:
        pulse.watch(java, Address("127.0.0.1", 1, ""), told.append)
        wait_until(lambda: len(asked) >= 6)
        java.terminate()
        assert java.wait(60) == -15
    assert told == []
    assert asked[:4] == [pulse.LIMIT, pulse.AGAIN] * 2
