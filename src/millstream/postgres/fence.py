"""A session's fence: a condition that must hold until each of its transactions is committed.

The service sets one on its sessions: this process is still the leader. Code that commits in such a
session, in any room, calls it as the last statement before the COMMIT. Without a fence the call
does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TypeAlias
from weakref import WeakKeyDictionary

from millstream.postgres.connection import Connection

# Raises an error if it does not hold; if it does, it goes on holding until the transaction ends.
Fence: TypeAlias = Callable[[Connection], None]

_fences: MutableMapping[Connection, Fence] = WeakKeyDictionary()


def put(conn: Connection, fence: Fence | None) -> None:
    """Give a session this fence in place of the one that it has; None: none."""
    if fence is None:
        _fences.pop(conn, None)
    else:
        _fences[conn] = fence


def hold(conn: Connection) -> None:
    """Hold the session's fence until the transaction ends.

    Outside a transaction, look whether it holds.
    """
    if fence := _fences.get(conn):
        fence(conn)
