"""The process of the demo's service: begun, watched, stopped."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from millstream.cli.demo import service
from millstream.errors import MillstreamError

from .conftest import Reader


def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """Have this run instead of `python -m millstream`."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_the_service_is_stopped_at_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(
        monkeypatch,
        tmp_path,
        'trap "echo stopped; exit 0" TERM; echo "$@"; while :; do sleep 0.05; done',
    )
    log = tmp_path / "log"
    with service.running("postgresql://h/d", log, Console()) as at_work:
        while "run --dsn" not in at_work.last_lines():
            time.sleep(0.01)
        at_work.check()
    assert at_work.process.returncode == 0
    assert log.read_text().splitlines() == ["-m millstream run --dsn postgresql://h/d", "stopped"]


def test_a_service_that_fails_shows_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(monkeypatch, tmp_path, "echo 'ERROR no Java here'; exit 3")
    reader: Any = Reader({service.INSTALLED: [(False,)]})
    with (
        (console := Console(width=100)).capture() as printed,
        pytest.raises(MillstreamError, match="exit code 3"),
        service.running("postgresql://h/d", tmp_path / "log", console) as at_work,
    ):
        at_work.wait_until_running(reader)
    assert "ERROR no Java here" in printed.get()


def test_ctrl_c_ends_the_service_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(monkeypatch, tmp_path, "exec sleep 600")
    with (
        pytest.raises(KeyboardInterrupt),
        service.running("postgresql://h/d", tmp_path / "log", Console()) as at_work,
    ):
        raise KeyboardInterrupt
    assert at_work.process.returncode == -signal.SIGTERM
