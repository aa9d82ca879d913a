"""A TCP proxy that can fall silent: what a firewall does that forgets a connection and tells
neither end.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread


class Proxy:
    """Forwards from a TCP port of its own to a Unix-domain socket, unless it is silent."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._silent = Event()
        self._ended = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def fall_silent(self) -> None:
        """Forward nothing from now on, and close nothing."""
        self._silent.set()

    def wake(self) -> None:
        """Serve new connections; those that fell silent stay so."""
        self._silent = Event()

    def close(self) -> None:
        """End."""
        self._ended.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            # Closed at the end, or the server is down: the client then sees a lost connection.
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self.target))
                Thread(
                    target=self._forward,
                    args=(client, server, self._silent),
                    name="proxied",
                    daemon=True,
                ).start()

    def _forward(self, client: socket.socket, server: socket.socket, silent: Event) -> None:
        # Either side may end the connection.
        with client, server, contextlib.suppress(OSError):
            ends = [client, server]
            while not self._ended.is_set():
                readable, _, _ = select.select(ends, [], [], 0.05)
                for end in readable:
                    data = end.recv(1 << 16)
                    if silent.is_set():
                        # Lost on the way, the news that an end has closed too.
                        ends = ends if data else [one for one in ends if one is not end]
                    elif not data:
                        return
                    else:
                        (server if end is client else client).sendall(data)


@contextmanager
def proxy(target: Path) -> Iterator[Proxy]:
    """Run a proxy for the length of a `with` block."""
    made = Proxy(target)
    try:
        yield made
    finally:
        made.close()
