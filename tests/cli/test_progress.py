"""The progress bar: on a terminal, after a moment, and gone when the work is done."""

from __future__ import annotations

import io
import time

import pytest

from millstream.cli import progress
from millstream.cli.progress import Waiting


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Let stderr be a terminal; no fixture, since pytest sets stderr anew after them."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_work_that_lasts_shows_its_step_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 0.05)
    with Waiting("refreshing") as waiting:
        waiting.report("starting Spark")
        time.sleep(0.3)
        waiting.report("initial load", 0.5)
        time.sleep(0.3)
    assert "starting Spark" in stream.getvalue()
    assert "initial load" in stream.getvalue()


def test_work_that_is_done_at_once_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    with Waiting("refreshing") as waiting:
        waiting.report("starting Spark")
    assert stream.getvalue() == ""


def test_without_a_terminal_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with Waiting("refreshing"):
        time.sleep(0.1)
    assert stream.getvalue().strip() == ""
