"""Hand a source over from triggers to the log, and back, so that every transaction counts once.

Rows of the buffer carry the id of their transaction, whoever wrote them, and frontiers are snapshots. So a hand-over is
a snapshot too: of the transactions that it sees the one origin counts, of all others the next. It is recorded in one
row of the catalog, and there is nothing else to keep in step: what the other one wrote as well is passed over by the
readers, and pruned like all that is consumed.

    TRIGGER ── recorded ── published, slot ── all older transactions end ──▶ turn ──▶ triggers dropped ── WAL
       ▲          the log writes too, nobody reads that    │                              nobody needs them
       └─────── wal_transition_timeout, with the reason ───┘

What makes a turn right is that both know the transactions around it whole. The log knows every transaction that began
after the table was published: so we wait until all whose ids are older have ended, any of them in any database, or else
take the table's own lock, which all that had written to it must have given back. Triggers know every transaction that
wrote to the table before they were dropped, which happens afterwards, and waits for writers.

Back again triggers are made under that lock and the snapshot is taken under it: whoever wrote before has ended and is
seen, whoever writes after fires them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.capture.trigger import triggers
from millstream.capture.wal import publication, slot
from millstream.catalog import sources
from millstream.catalog.sources import Cutover, Mode, Source
from millstream.frontier.snapshot import Snapshot
from millstream.observe.failpoint import failpoint
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.table_locks import Patience, read_committed, under_lock

# One attempt at each tick; what was not to be had is tried again at the next.
BRIEF = Patience(seconds=0.0)


# -- to the log ------------------------------------------------------------------------------


def begin(conn: Connection, relid: int) -> None:
    """From here on the log is stored as far as it tells of the source; its triggers go on."""
    _put(conn, relid, "TRIGGER", mode="TRANSITIONING", reason=None, published_at=None)
    failpoint("handover_begun")


def publish(conn: Connection, dsn: str, relid: int, *, patience: Patience = BRIEF) -> None:
    """Have the log tell all of the source, and note from when on it does. Any part of it may have been done before."""
    source = sources.get(conn, relid)
    if source is None or source.mode != "TRANSITIONING":
        return
    lacking = publication.without_old_rows(conn, source)
    if lacking:
        under_lock(conn, lacking, "ACCESS EXCLUSIVE", lambda: _set_identities(conn, relid, lacking), patience)
        failpoint("handover_identity")
    under_lock(conn, [], "SHARE ROW EXCLUSIVE", lambda: _publish(conn, source), patience)
    failpoint("handover_published")
    made = slot.ensure(conn, dsn)
    failpoint("handover_slot")
    as_ = publication.entries(conn, made.publication, [relid, *source.partitions])
    # Our own id, and not the present snapshot's end: transactions beyond that may have begun long ago.
    with read_committed(conn):
        own = conn.execute("SELECT pg_current_xact_id()::text::int8").fetchall()[0][0]
        _put(conn, relid, "TRANSITIONING", published_at=own, published_as=as_)
    failpoint("handover_waiting")


def _set_identities(conn: Connection, relid: int, tables: Sequence[Name]) -> None:
    """Set them, and record what they were."""
    source = sources.get_for_update(conn, relid)
    if source is not None:
        former = {**publication.identities(conn, [table.oid for table in tables]), **source.identities}
        sources.put(conn, replace(source, identities=former))
        publication.set_identities(conn, dict.fromkeys((table.oid for table in tables), "FULL"))


def _publish(conn: Connection, source: Source) -> None:
    """With its members: a partition is published with its root, a child that came later is not."""
    slot.publish(conn, relations.names(conn, [source.relid]))
    slot.publish(conn, publication.untold(conn, slot.name_of(conn), source.partitions))


def is_whole(conn: Connection, source: Source) -> bool:
    """Does the log know every transaction that may still write to the source? All that ran before must have ended."""
    return source.published_at is not None and _now(conn).xmin > source.published_at


def turn(conn: Connection, relid: int) -> bool:
    """The log is in charge from here on, if it is whole; is it?"""
    with read_committed(conn):
        source = sources.get_for_update(conn, relid)
        is_turned = source is not None and is_whole(conn, source) and _turned(conn, source)
    failpoint("handover_turned")
    return is_turned


def turn_under_lock(conn: Connection, relid: int, *, patience: Patience = BRIEF) -> bool:
    """The same where some transaction elsewhere does not end: wait only for those that have written to this table."""

    def work() -> bool:
        source = sources.get_for_update(conn, relid)
        return source is not None and source.published_at is not None and _turned(conn, source)

    is_turned = under_lock(conn, relations.names(conn, [relid]), "SHARE ROW EXCLUSIVE", work, patience)
    failpoint("handover_turned")
    return is_turned


def _turned(conn: Connection, source: Source) -> bool:
    """Not where somebody has altered the publication or an identity meanwhile: then it is published once more."""
    if source.mode != "TRANSITIONING":
        return False
    is_told = not publication.gaps(conn, slot.name_of(conn), source) and not publication.without_old_rows(conn, source)
    turned = replace(source, mode="WAL", cutovers=(*source.cutovers, Cutover(_now(conn), "t")), reason=None)
    sources.put(conn, turned if is_told else replace(source, published_at=None))
    return is_told


def release(conn: Connection, relid: int, *, patience: Patience = BRIEF) -> bool:
    """Drop the triggers of a source that the log is in charge of; were there any?"""
    dropped = triggers.drop_triggers(conn, relid, patience=patience)
    if dropped:
        failpoint("handover_released")
    return dropped


def give_up(conn: Connection, relid: int, reason: str) -> None:
    """Stay with triggers, which have been in charge all the time."""
    _put(conn, relid, "TRANSITIONING", mode="TRIGGER", published_at=None, published_as=())
    _put(conn, relid, "TRIGGER", reason=reason)
    failpoint("handover_given_up")


# -- back to triggers ------------------------------------------------------------------------


def take_back(conn: Connection, relid: int, reason: str, *, patience: Patience = BRIEF) -> None:
    """Triggers are in charge from here on; what the log tells of the time before still counts."""
    triggers.install(conn, relations.table(conn, relid), (), patience=patience, back_because=reason)
    failpoint("handover_taken_back")


def lose(conn: Connection, relid: int, reason: str, *, patience: Patience = BRIEF) -> None:
    """Triggers are in charge, and what the log might have told is given up: all readers reinitialise."""
    if relations.names(conn, [relid]):
        triggers.install(conn, relations.table(conn, relid), (), patience=patience, lost_because=reason)
    else:  # It was dropped, and its readers are told so.
        _put(conn, relid, None, mode="TRIGGER", cutovers=(), reason=reason)
    failpoint("handover_lost")


# -- afterwards ------------------------------------------------------------------------------


def settle(conn: Connection, relid: int) -> bool:
    """Forget the turns that every reader has passed; is the log needed no more?"""
    with read_committed(conn):
        source = sources.get_for_update(conn, relid)
        if source is None or not source.cutovers:
            return False
        frontiers = [each for each in sources.consumers(conn, relid) if each is not None]
        cutovers = [each for each in source.cutovers if not all(frontier.reaches(each.seen) for frontier in frontiers)]
        if len(cutovers) < len(source.cutovers):
            source = replace(source, cutovers=tuple(cutovers))
            sources.put(conn, source)
    return not source.uses_wal


def unpublish(conn: Connection, *, patience: Patience = BRIEF) -> None:
    """Have the log tell nothing more of tables that nobody needs it for; one killed on the way left them to us."""
    logged = [source for source in sources.every(conn) if source.uses_wal]
    needed = {oid for source in logged for oid in (source.relid, *source.partitions)}
    rest = relations.names(conn, sorted(slot.published(conn) - needed))
    if rest:
        under_lock(conn, [], "SHARE ROW EXCLUSIVE", lambda: slot.withdraw(conn, rest), patience)


# -- what all of them do ---------------------------------------------------------------------


def _now(conn: Connection) -> Snapshot:
    return Snapshot.parse(conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0])


def _put(conn: Connection, relid: int, expected: Mode | None, **facts: object) -> None:
    """Change what is recorded, if the source is still where it was."""
    with read_committed(conn):
        source = sources.get_for_update(conn, relid)
        if source is not None and expected in (source.mode, None):
            sources.put(conn, replace(source, **facts))  # type: ignore[arg-type]  # by name, as the callers have them
