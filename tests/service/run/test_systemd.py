"""What systemd is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.service.run.systemd import Systemd


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(address))
        line.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        yield line


def test_readiness_status_and_stopping_are_sent(manager: socket.socket) -> None:
    systemd = Systemd()
    systemd.ready("leader")
    systemd.status("waiting")
    systemd.stopping()
    assert [manager.recv(100) for _ in range(3)] == [
        b"READY=1\nSTATUS=leader",
        b"STATUS=waiting",
        b"STOPPING=1",
    ]


def test_the_watchdog_is_fed_once_in_half_its_time(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", str(3_600_000_000))
    systemd = Systemd()
    systemd.alive()
    systemd.alive()
    assert manager.recv(100) == b"WATCHDOG=1"
    with pytest.raises(BlockingIOError):
        manager.recv(100)
    assert systemd.longest_sleep == 1800


def test_a_watchdog_of_another_process_is_ignored(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    systemd = Systemd()
    systemd.alive()
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    systemd = Systemd()
    systemd.ready("leader")
    systemd.alive()
    assert systemd.longest_sleep == float("inf")
