"""A TCP proxy that can fall silent: what a firewall does that forgets a connection and tells neither end."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread


class Proxy:
    """Forwards from a port of its own to another, unless it is silent."""

    def __init__(self, port: int) -> None:
        self.target = port
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
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                Thread(target=self._forward, args=(client, server, self._silent), name="proxied", daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, silent: Event) -> None:
        with client, server, contextlib.suppress(OSError):
            while not self._ended.is_set():
                if silent.is_set():
                    self._ended.wait(0.05)
                    continue
                readable, _, _ = select.select([client, server], [], [], 0.05)
                for end in readable:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    if not silent.is_set():
                        (server if end is client else client).sendall(data)


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """A proxy for the length of a `with` block."""
    made = Proxy(port)
    try:
        yield made
    finally:
        made.close()
