"""The catalog's rows of slots: which one is ours, up to where it is durable, and how far each source has come.

The cursor is moved in the transaction that stores what lies before it, and only after its commit is the log let go:
it is never behind what the server was told.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import errors

from millstream.frontier import lsn
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog", "slots.sql")


@dataclass(frozen=True)
class Slot:
    """A slot as it was made."""

    name: str
    publication: str
    publication_oid: int
    database_oid: int
    system_identifier: str
    timeline: int
    created_lsn: int
    cursor: int
    """All before it is durable."""


@dataclass(frozen=True, order=True)
class Watermark:
    """The last change of a source that is in its buffer."""

    commit_lsn: int
    ordinal: int


WHOLE = 2**63 - 1
"""The ordinal of a watermark whose transaction is stored to its end."""


def put(conn: Connection, slot: Slot) -> None:
    """Record a slot that was made."""
    texts = {"created_lsn": lsn.printed(slot.created_lsn), "cursor": lsn.printed(slot.cursor)}
    conn.execute(_SQL["put"], {**vars(slot), **texts})


def get(conn: Connection, name: str) -> Slot | None:
    """The slot of that name, if it is ours."""
    row = conn.execute(_SQL["get"], (name,)).fetchone()
    if row is None:
        return None
    name, publication, publication_oid, database_oid, system, timeline, created_lsn, cursor = row
    created, durable = lsn.parse(created_lsn), lsn.parse(cursor)
    return Slot(name, publication, publication_oid, database_oid, system, timeline, created, durable)


def remove(conn: Connection, name: str) -> None:
    """Forget it, and the watermarks in it."""
    conn.execute(_SQL["remove"], (name,))


def drop_on_server(conn: Connection, name: str, seconds: float = 10.0) -> None:
    """Drop a replication slot that is not needed any more; whoever still reads from it is sent away."""
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
    """Be the one that stores from here on; returns what to prove it by.

    None where there is no such slot, or where it is another's and is not to be taken over.
    """
    row = conn.execute(_SQL["claim"], {"name": name, "owner": owner, "take_over": take_over}).fetchone()
    return row[0] if row else None


def advance(conn: Connection, name: str, epoch: int, cursor: int) -> int | None:
    """Move the cursor, never back; returns the next transaction id, or None if another process has claimed the slot."""
    row = conn.execute(_SQL["advance"], (lsn.printed(cursor), name, epoch)).fetchone()
    return row[0] if row else None


def watermarks(conn: Connection, name: str) -> dict[int, Watermark]:
    """How far each source has come that anything was stored of."""
    rows = conn.execute(_SQL["watermarks"], (name,))
    return {relid: Watermark(lsn.parse(commit_lsn), ordinal) for relid, commit_lsn, ordinal in rows}


def put_watermarks(conn: Connection, name: str, found: Mapping[int, Watermark]) -> None:
    """Record how far these sources have come."""
    lsns = [lsn.printed(each.commit_lsn) for each in found.values()]
    conn.execute(_SQL["put_watermarks"], (name, list(found), lsns, [each.ordinal for each in found.values()]))
