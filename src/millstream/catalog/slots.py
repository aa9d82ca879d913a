"""Rows of millstream.slots and millstream.watermarks: our replication slot, its cursor, how far
each source has come.

The cursor moves in the transaction that stores the changes before it, and the server may discard
WAL only after that commit. So the cursor is never behind the position that was acknowledged to the
server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from psycopg import errors

from millstream.frontier import lsn
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog", "slots.sql")


@dataclass(frozen=True)
class Slot:
    """A replication slot, as recorded when it was created."""

    name: str
    publication: str
    publication_oid: int
    database_oid: int
    system_identifier: str
    timeline: int
    created_lsn: int
    cursor: int
    """Every change before this position is durable in the buffers."""


@dataclass(frozen=True)
class Progress:
    """Further positions of a slot's reader, besides the cursor; zero if unknown."""

    received: int = 0
    """Position of the last keepalive, or of the end of the last transaction."""
    heartbeat: int = 0
    """Position of the last heartbeat that was sent."""
    heartbeat_age: timedelta = timedelta(0)
    markers: int = 0
    """How many positions without changes are stored with this."""


NO_PROGRESS = Progress()


@dataclass(frozen=True)
class Interruption:
    """The last interruption of a reader of WAL, and how many there were since they were last
    recorded.
    """

    reason: str
    count: int
    at: float
    """By `time.monotonic()`."""


@dataclass(frozen=True, order=True)
class Watermark:
    """The last change of a source that is in its buffer."""

    commit_lsn: int
    ordinal: int


WHOLE = 2**63 - 1
"""The ordinal of a watermark whose transaction is stored to its end."""


def put(conn: Connection, slot: Slot) -> None:
    """Record a slot that was created."""
    texts = {"created_lsn": lsn.printed(slot.created_lsn), "cursor": lsn.printed(slot.cursor)}
    conn.execute(_SQL["put"], {**vars(slot), **texts})


def get(conn: Connection, name: str) -> Slot | None:
    """Return the slot of that name, or None if it is not in the catalog."""
    row = conn.execute(_SQL["get"], (name,)).fetchone()
    if row is None:
        return None
    name, publication, publication_oid, database_oid, system, timeline, created_lsn, cursor = row
    created, durable = lsn.parse(created_lsn), lsn.parse(cursor)
    return Slot(
        name, publication, publication_oid, database_oid, system, timeline, created, durable
    )


def remove(conn: Connection, name: str) -> None:
    """Delete a slot and its watermarks from the catalog."""
    conn.execute(_SQL["remove"], (name,))


def drop_on_server(conn: Connection, name: str, seconds: float = 10.0) -> None:
    """Drop a replication slot on the server.

    End the connection that still reads from it, if any.
    """
    deadline = time.monotonic() + seconds
    while True:
        conn.execute(_SQL["end_sender"], (name,))
        try:
            conn.execute(_SQL["drop_slot"], (name,))
            return
        except errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def claim(conn: Connection, name: str, owner: str, *, take_over: bool) -> int | None:
    """Claim the slot for this process and return the new epoch, which `advance` requires.

    Return None if there is no such slot, or if another process has it and `take_over` is False.
    """
    row = conn.execute(
        _SQL["claim"], {"name": name, "owner": owner, "take_over": take_over}
    ).fetchone()
    return row[0] if row else None


def advance(conn: Connection, name: str, epoch: int, cursor: int, progress: Progress) -> int | None:
    """Move the cursor forward, never back.

    Return the next transaction id, or None if another process has the slot.
    """
    positions = {"cursor": cursor, "received": progress.received, "heartbeat": progress.heartbeat}
    texts = {label: lsn.printed(position) for label, position in positions.items()}
    facts = {
        "name": name,
        "epoch": epoch,
        "heartbeat_age": progress.heartbeat_age,
        "markers": progress.markers,
    }
    row = conn.execute(_SQL["advance"], {**facts, **texts}).fetchone()
    return row[0] if row else None


def note_interruption(conn: Connection, name: str, epoch: int, interruption: Interruption) -> None:
    """Record that the connection of this reader was interrupted, and why."""
    ago = timedelta(seconds=time.monotonic() - interruption.at)
    row = {
        "count": interruption.count,
        "reason": interruption.reason,
        "ago": ago,
        "name": name,
        "epoch": epoch,
    }
    conn.execute(_SQL["note_interruption"], row)


def watermarks(conn: Connection, name: str) -> dict[int, Watermark]:
    """Return the watermark of each source that has one, by oid."""
    rows = conn.execute(_SQL["watermarks"], (name,))
    return {relid: Watermark(lsn.parse(commit_lsn), ordinal) for relid, commit_lsn, ordinal in rows}


def put_watermarks(conn: Connection, name: str, by_source: Mapping[int, Watermark]) -> None:
    """Record how far these sources have come."""
    lsns = [lsn.printed(watermark.commit_lsn) for watermark in by_source.values()]
    ordinals = [watermark.ordinal for watermark in by_source.values()]
    conn.execute(_SQL["put_watermarks"], (name, list(by_source), lsns, ordinals))
