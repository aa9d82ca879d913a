"""A proxy that falls silent: nothing arrives, and neither end is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from millstream.testing.proxy import proxy


@pytest.fixture
def target() -> Iterator[tuple[Path, socket.socket]]:
    """A socket that listens, at a path that is short enough for one."""
    with TemporaryDirectory(dir="/tmp") as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path := Path(directory) / "s"))
        listener.listen()
        listener.settimeout(90)
        yield path, listener


def test_both_directions_are_forwarded_until_it_falls_silent(
    target: tuple[Path, socket.socket],
) -> None:
    path, listener = target
    with (
        proxy(path) as between,
        socket.create_connection(("127.0.0.1", between.port), timeout=90) as client,
    ):
        server, _ = listener.accept()
        with server:
            server.settimeout(90)
            client.sendall(b"ask")
            assert server.recv(9) == b"ask"
            server.sendall(b"answer")
            assert client.recv(9) == b"answer"
            between.fall_silent()
            client.sendall(b"lost")
            server.settimeout(0.3)
            with pytest.raises(TimeoutError):
                server.recv(9)


def test_new_connections_are_served_when_it_wakes(target: tuple[Path, socket.socket]) -> None:
    path, listener = target
    with proxy(path) as between:
        between.fall_silent()
        between.wake()
        with socket.create_connection(("127.0.0.1", between.port), timeout=90) as client:
            server, _ = listener.accept()
            with server:
                server.settimeout(90)
                client.sendall(b"ask")
                assert server.recv(9) == b"ask"
