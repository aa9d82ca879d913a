"""Ping Java regularly, and kill one that hangs, so that no thread waits for it forever.

A Java process that hangs (it is stopped, or waits for memory) keeps its connections open, and a
refresh would wait for it forever. So a thread opens a separate connection, which Java answers from
a separate thread, independent of its other threads:

    ask ──▶ answer                                   ask again after EVERY seconds
    ask ──▶ refused, or the connection is closed     it is ending by itself; ask again
    ask ──▶ nothing for LIMIT seconds ──▶ ask once more ──▶ nothing for AGAIN seconds ──▶ SIGKILL

The second question is for the case that this process was stopped together with Java: when both
continue, the first limit has already passed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from subprocess import Popen, TimeoutExpired
from threading import Thread

from millstream.observe import log

# In seconds. A garbage collection of a few gigabytes stops Java for some seconds.
EVERY, LIMIT, AGAIN = 10.0, 45.0, 15.0


@dataclass(frozen=True)
class Address:
    """The address of Java, and the token for a connection."""

    host: str
    port: int
    token: str


def watch(java: Popen[bytes], address: Address, killed: Callable[[str], None]) -> None:
    """Watch a Java until it ends; call `killed` with the reason just before killing it."""
    Thread(target=_watch, args=(java, address, killed), name="java's pulse", daemon=True).start()


def _watch(java: Popen[bytes], address: Address, killed: Callable[[str], None]) -> None:
    while _runs_on(java, EVERY):
        if hangs(address, LIMIT) and hangs(address, AGAIN) and java.poll() is None:
            log.error("Java does not answer and is killed", pid=java.pid, seconds=LIMIT + AGAIN)
            killed(f"It had not answered for {LIMIT + AGAIN:g} s.")
            java.kill()


def _runs_on(java: Popen[bytes], seconds: float) -> bool:
    """Wait for this time; return False at once if Java ends."""
    try:
        java.wait(seconds)
    except TimeoutExpired:
        return True
    return False


def hangs(address: Address, seconds: float) -> bool:
    """Return True if Java neither answers nor refuses the connection within that time."""
    try:
        with socket.create_connection((address.host, address.port), timeout=seconds) as line:
            # Py4J's authentication command and the token, one per line.
            line.sendall(f"A\n{address.token}\ne\n".encode())
            line.recv(16)
    except TimeoutError:
        return True
    except OSError:
        return False
    return False
