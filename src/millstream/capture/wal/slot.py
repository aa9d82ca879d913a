"""Create and drop the slot and the publication of a database, and check that they are still the
same.

A name proves nothing. A slot that was dropped and created again has a gap, a restored server has
another history, and a publication that was created again did not publish in between; rows would be
missing without any error. So the identities are recorded when they are created, and compared before
each start:

    server        system identifier and timeline         differ if it was restored, promoted or upgraded
    database      its oid
    slot          plugin, not invalidated                and not ahead of our cursor: another session advanced it,
                                                         or it is a new slot with the old name
    publication   its oid
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from millstream.capture.wal.connection import replication
from millstream.catalog import slots
from millstream.catalog.slots import Slot
from millstream.errors import SlotLost
from millstream.frontier import lsn
from millstream.postgres import fence, relations
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load

_SQL = load("millstream.capture.wal", "slot.sql")

PLUGIN = "pgoutput"
# A new slot waits for every transaction that runs, in any database; the server measures that by
# this setting.
PATIENCE = "2s"


def name_of(conn: Connection) -> str:
    """Return the name of this installation's slot, which is also the name of its publication."""
    name: str = conn.execute(_SQL["name"]).fetchall()[0][0]
    return name


# -- making and taking away ------------------------------------------------------------------


def published(conn: Connection) -> set[int]:
    """Return the oids of the tables in the publication."""
    return {relid for (relid,) in conn.execute(_SQL["published"], (name_of(conn),))}


def publish(conn: Connection, tables: Sequence[Name]) -> str:
    """Create the publication of these tables, or add those it lacks; returns its name.

    A table of which the old rows are not in the log (replica identity) can then not be updated by
    its users: set the identity first. Changes are published under the names of partitions, so that
    TRUNCATE of one is visible.
    """
    name = name_of(conn)
    there = published(conn)
    lacking = [table.identifier for table in tables if table.oid not in there]
    listed = sql.SQL(", ").join(lacking)
    if not conn.execute(_SQL["publication"], (name,)).fetchone():
        options = sql.SQL(
            ", publish_generated_columns = stored" if conn.info.server_version >= 180000 else ""
        )
        create = sql.SQL("CREATE PUBLICATION {}{} WITH (publish_via_partition_root = false{})")
        of = sql.SQL(" FOR TABLE ") + listed if lacking else sql.SQL("")
        conn.execute(create.format(sql.Identifier(name), of, options))
    elif lacking:
        conn.execute(
            sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), listed)
        )
    return name


def create(conn: Connection, dsn: str) -> Slot:
    """Create the slot, after the publication, and record both as they were made."""
    name = name_of(conn)
    if slots.get(conn, name) is not None:
        raise ValueError(f"slot {name} already exists")
    # Of an attempt that was killed before it was recorded; the name is of this installation only.
    fence.hold(conn)
    slots.drop_on_server(conn, name)
    with replication(dsn, "millstream slot", lock_timeout=PATIENCE) as server:
        system, timeline, *_ = server.execute("IDENTIFY_SYSTEM").fetchall()[0]
        command = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput (SNAPSHOT 'nothing')")
        _, point, *_ = server.execute(command.format(sql.Identifier(name))).fetchall()[0]
    start = lsn.parse(point)
    database = conn.execute(_SQL["database"]).fetchall()[0][0]
    made = Slot(name, name, _publication(conn, name), database, system, timeline, start, start)
    slots.put(conn, made)
    return made


def ensure(conn: Connection, dsn: str) -> Slot:
    """Return the slot; create it if there is none."""
    return slots.get(conn, name_of(conn)) or create(conn, dsn)


def withdraw(conn: Connection, tables: Sequence[Name]) -> None:
    """Take these tables out of the publication, those that are in it.

    One in a schema that is closed to us cannot be named; it stays until the publication is dropped.
    """
    there = published(conn)
    named = relations.reachable(conn, [table.oid for table in tables if table.oid in there])
    listed = [table.identifier for table in named]
    if listed:
        drop = sql.SQL("ALTER PUBLICATION {} DROP TABLE {}")
        conn.execute(drop.format(sql.Identifier(name_of(conn)), sql.SQL(", ").join(listed)))


def drop(conn: Connection, name: str) -> None:
    """Drop the slot and the publication, and forget them.

    The slot first: a publication alone holds nothing.
    """
    fence.hold(conn)
    slots.drop_on_server(conn, name)
    conn.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))
    slots.remove(conn, name)


# -- still the same? -------------------------------------------------------------------------


def check(conn: Connection, dsn: str, slot: Slot) -> None:
    """Raise SlotLost unless WAL capture can resume at the cursor."""
    with replication(dsn, "millstream slot") as server:
        system, timeline, end, _ = server.execute("IDENTIFY_SYSTEM").fetchall()[0]
    if system != slot.system_identifier or timeline != slot.timeline:
        raise SlotLost.because(slot.name, "The server has been restored, promoted or replaced.")
    if conn.execute(_SQL["database"]).fetchall()[0][0] != slot.database_oid:
        raise SlotLost.because(slot.name, "It belongs to another database.")
    if lsn.parse(end) < slot.cursor:
        raise SlotLost.because(
            slot.name,
            f"WAL ends at {end}, before the last position that was read: the server was reset to an earlier state.",
        )
    if _publication(conn, slot.publication) != slot.publication_oid:
        raise SlotLost.because(
            slot.name,
            "The publication was created again: changes made in between were not published.",
        )
    _check_slot(conn, slot)


def _check_slot(conn: Connection, slot: Slot) -> None:
    row = conn.execute(_SQL["slot"], (slot.name,)).fetchone()
    if row is None:
        raise SlotLost.because(slot.name, "It was dropped.")
    plugin, database, _, confirmed, wal_status, reason, conflicting = row
    if plugin != PLUGIN or database != slot.database_oid:
        raise SlotLost.because(slot.name, "Another slot has its name now.")
    if wal_status == "lost" or reason or conflicting:
        raise SlotLost.because(
            slot.name, f"The server has invalidated it ({reason or 'its WAL was removed'})."
        )
    if confirmed is not None and lsn.parse(confirmed) > slot.cursor:
        ours = lsn.printed(slot.cursor)
        raise SlotLost.because(
            slot.name,
            f"Its confirmed position is {confirmed}, but Millstream has stored changes only up to {ours}.",
        )


def end_stale_sender(conn: Connection, name: str) -> bool:
    """End the sender that still serves a dead connection of ours, if there is one."""
    return bool(conn.execute(_SQL["stale_sender"], (name, f"millstream log {name}")).fetchall())


def _publication(conn: Connection, name: str) -> int:
    row = conn.execute(_SQL["publication"], (name,)).fetchone()
    if row is None:
        raise SlotLost.because(name, "Its publication does not exist.")
    oid: int = row[0]
    return oid
