"""Move a source from trigger capture to WAL capture, and back, so that every transaction counts
once.

    TRIGGER --> TRANSITIONING ------------------------------> WAL
       ^            |   publish; wait for older transactions    |   drop the triggers
       |            v   switch: record the cutover              v
       +--- timeout, or an obstacle           return_to_triggers, abandon_wal

While a source is TRANSITIONING, triggers and WAL capture write the same changes into its buffer,
each with its origin. The *cutover* is a snapshot S, recorded once in the catalog: transactions that
S sees count by their triggers, all others by WAL, no matter when either wrote its rows. Readers
ignore the rows of the other origin (`buffer/slices.py`).

    transaction     11   12   13   14   15          S sees 11, 12, 14
    from triggers    *    *    -    *    -          13 and 15 are ignored
    from WAL         -    -    *    -    *          11, 12, 14 are ignored

On the way back it is the reverse: transactions that its snapshot sees count by WAL, all others by
their triggers. A source has a list of cutovers, because a reader with an old frontier may have to
pass several.

This is exact if each way of capture has all of the transactions that count by it:

- WAL has every transaction that began after the table was published. So the switch waits until all transactions with
  older ids have ended, in any database; or it takes the table's own lock, which every earlier writer has released.
- Triggers have every transaction that wrote to the table before they are dropped. They are dropped after the
  switch, under a lock that waits for writers.

The way back creates the triggers under a lock and takes the snapshot under the same lock: a
transaction that wrote before has ended and is seen by S; one that writes later fires the triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.capture.trigger import triggers
from millstream.capture.trigger.triggers import WalReturn
from millstream.capture.wal import publication, slot
from millstream.catalog import sources
from millstream.catalog.sources import Cutover, Mode, Source
from millstream.frontier.snapshot import Snapshot
from millstream.observe.failpoint import failpoint
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.table_locks import Patience, read_committed, under_lock

# Try each lock once; the next tick tries again.
BRIEF = Patience(seconds=0.0)


# -- to WAL ------------------------------------------------------------------------------


def begin(conn: Connection, relid: int) -> None:
    """Start a transition: WAL capture also stores the changes of the source, and its triggers stay."""
    _put(conn, relid, "TRIGGER", mode="TRANSITIONING", reason=None, published_at=None)
    failpoint("transition_begun")


def publish(conn: Connection, dsn: str, relid: int, *, patience: Patience = BRIEF) -> None:
    """Publish the source, create the slot, and record the first transaction that WAL has in full.

    May be repeated.
    """
    source = sources.get(conn, relid)
    if source is None or source.mode != "TRANSITIONING":
        return
    # WAL contains an old row in full only under REPLICA IDENTITY FULL.
    lacking = publication.without_old_rows(conn, source)
    if lacking:
        under_lock(
            conn,
            lacking,
            "ACCESS EXCLUSIVE",
            lambda: _set_identities(conn, relid, lacking),
            patience,
        )
        failpoint("transition_identity")
    under_lock(conn, [], "SHARE ROW EXCLUSIVE", lambda: _publish(conn, source), patience)
    failpoint("transition_published")
    its_slot = slot.ensure(conn, dsn)
    failpoint("transition_slot")
    entries = publication.entries(conn, its_slot.publication, [relid, *source.partitions])
    # A new transaction id, not the xmax of a snapshot: transactions above xmax may have begun
    # before.
    with read_committed(conn):
        own = conn.execute("SELECT pg_current_xact_id()::text::int8").fetchall()[0][0]
        _put(conn, relid, "TRANSITIONING", published_at=own, published_as=entries)
    failpoint("transition_waiting")


def _set_identities(conn: Connection, relid: int, tables: Sequence[Name]) -> None:
    """Set REPLICA IDENTITY FULL on the tables, and record their former identities."""
    source = sources.get_for_update(conn, relid)
    if source is not None:
        former = {
            **publication.identities(conn, [table.oid for table in tables]),
            **source.identities,
        }
        sources.put(conn, replace(source, identities=former))
        publication.set_identities(conn, dict.fromkeys((table.oid for table in tables), "FULL"))


def _publish(conn: Connection, source: Source) -> None:
    """Publish the source and its partitions; child tables that were created later are not published
    with their root.
    """
    slot.publish(conn, relations.names(conn, [source.relid]))
    slot.publish(conn, publication.unpublished(conn, slot.name_of(conn), source.partitions))


def may_switch(conn: Connection, source: Source) -> bool:
    """Return True if WAL has every transaction that may still write to the source: all older ones
    have ended.
    """
    return source.published_at is not None and _current_snapshot(conn).xmin > source.published_at


def switch_to_wal(conn: Connection, relid: int) -> bool:
    """Record the cutover to WAL, if no older transaction runs; return True if it is recorded."""
    with read_committed(conn):
        source = sources.get_for_update(conn, relid)
        is_switched = source is not None and may_switch(conn, source) and _switch(conn, source)
    failpoint("transition_switched")
    return is_switched


def switch_under_lock(conn: Connection, relid: int, *, patience: Patience = BRIEF) -> bool:
    """Record the cutover to WAL under the table's lock, which waits only for transactions that
    wrote to this table.
    """

    def work() -> bool:
        source = sources.get_for_update(conn, relid)
        return source is not None and source.published_at is not None and _switch(conn, source)

    is_switched = under_lock(
        conn, relations.names(conn, [relid]), "SHARE ROW EXCLUSIVE", work, patience
    )
    failpoint("transition_switched")
    return is_switched


def _switch(conn: Connection, source: Source) -> bool:
    """Record the cutover; if the publication or a replica identity was altered, have the source
    published again.
    """
    if source.mode != "TRANSITIONING":
        return False
    is_published = not publication.gaps(
        conn, slot.name_of(conn), source
    ) and not publication.without_old_rows(conn, source)
    # Origin "t": what the snapshot sees is read from the triggers.
    cutover = Cutover(_current_snapshot(conn), "t")
    switched = replace(source, mode="WAL", cutovers=(*source.cutovers, cutover), reason=None)
    sources.put(conn, switched if is_published else replace(source, published_at=None))
    return is_published


def drop_triggers(conn: Connection, relid: int, *, patience: Patience = BRIEF) -> bool:
    """Drop the triggers of a source that is captured from WAL; return True if there were any."""
    dropped = triggers.drop_triggers(conn, relid, patience=patience)
    if dropped:
        failpoint("transition_released")
    return dropped


def stay_on_triggers(conn: Connection, relid: int, reason: str) -> None:
    """Abandon a transition to WAL.

    Nothing is lost: until the switch, the triggers capture everything.
    """
    _put(conn, relid, "TRANSITIONING", mode="TRIGGER", published_at=None, published_as=())
    _put(conn, relid, "TRIGGER", reason=reason)
    failpoint("transition_given_up")


# -- back to triggers ------------------------------------------------------------------------


def return_to_triggers(
    conn: Connection, relid: int, reason: str, *, patience: Patience = BRIEF
) -> None:
    """Return to triggers. Changes from WAL before the cutover still count."""
    triggers.install(
        conn, relations.table(conn, relid), (), patience=patience, back=WalReturn(reason)
    )
    failpoint("transition_returned")


def abandon_wal(conn: Connection, relid: int, reason: str, *, patience: Patience = BRIEF) -> None:
    """Return to triggers after WAL was lost: changes may be missing, so all readers reinitialise."""
    if relations.names(conn, [relid]):
        triggers.install(
            conn,
            relations.table(conn, relid),
            (),
            patience=patience,
            back=WalReturn(reason, is_lost=True),
        )
    else:  # The table was dropped; its readers notice that by themselves.
        _put(conn, relid, None, mode="TRIGGER", cutovers=(), reason=reason)
    failpoint("transition_lost")


# -- afterwards ------------------------------------------------------------------------------


def forget_cutovers(conn: Connection, relid: int) -> bool:
    """Remove the cutovers that every reader has passed; return True if the source no longer needs
    WAL.
    """
    with read_committed(conn):
        source = sources.get_for_update(conn, relid)
        if source is None or not source.cutovers:
            return False
        frontiers = [each for each in sources.consumers(conn, relid) if each is not None]
        cutovers = [
            each
            for each in source.cutovers
            if not all(frontier.reaches(each.seen) for frontier in frontiers)
        ]
        if len(cutovers) < len(source.cutovers):
            source = replace(source, cutovers=tuple(cutovers))
            sources.put(conn, source)
    return not source.uses_wal


def unpublish_unused(conn: Connection, *, patience: Patience = BRIEF) -> None:
    """Unpublish the tables that are no longer captured from WAL, also those that a killed process
    left.
    """
    from_wal = [source for source in sources.every(conn) if source.uses_wal]
    needed = {oid for source in from_wal for oid in (source.relid, *source.partitions)}
    rest = relations.names(conn, sorted(slot.published(conn) - needed))
    if rest:
        under_lock(conn, [], "SHARE ROW EXCLUSIVE", lambda: slot.withdraw(conn, rest), patience)


# -- shared by all steps ---------------------------------------------------------------------


def _current_snapshot(conn: Connection) -> Snapshot:
    return Snapshot.parse(conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0])


def _put(conn: Connection, relid: int, expected: Mode | None, **facts: object) -> None:
    """Change the record of a source, if its mode is still the expected one (None: any)."""
    with read_committed(conn):
        source = sources.get_for_update(conn, relid)
        if source is not None and expected in (source.mode, None):
            sources.put(conn, replace(source, **facts))  # type: ignore[arg-type]  # by name, as the callers have them
