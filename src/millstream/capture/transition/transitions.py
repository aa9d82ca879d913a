"""Move sources between triggers and the log, a step at a tick, as their readers and the server allow.

Each step is recorded before the next is taken, and can be taken again: a process that is killed anywhere leaves every
source captured whole, and the next one goes on. A lock is asked for once and briefly; what was not to be had is tried
again at the next tick.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psycopg

from millstream.capture.transition import cutover
from millstream.capture.transition.context import TransitionContext
from millstream.capture.wal import publication, slot
from millstream.catalog import slots, sources
from millstream.catalog.sources import RETURNED, Source, WantedCapture
from millstream.errors import (
    BadSource,
    LockNotHad,
    MillstreamError,
    ServerDown,
    SlotLost,
    SpillFailed,
    WalBehind,
    WalNotUnderstood,
)
from millstream.observe import log
from millstream.postgres import notifications
from millstream.postgres.connection import Connection
from millstream.postgres.failures import code_of, transient_trouble

# Seconds between two looks at all sources, and between two at one that has to stay on its triggers.
EVERY = 1.0
AGAIN = 30.0
# A source that came back by itself is not handed over again before this.
REST = timedelta(minutes=10)
# After these the log cannot be gone on with.
LOST = (SlotLost, WalNotUnderstood)


def advance(context: TransitionContext) -> None:
    """Take the next step of every hand-over, where it can be taken."""
    if time.monotonic() - context.steps.looked_at < EVERY:
        return
    context.steps.looked_at = time.monotonic()
    with context.mutex.exclusive("transitions") as is_ours:
        if is_ours:
            _advance(context)


def _advance(context: TransitionContext) -> None:
    known, wishes = sources.every(context.conn), sources.wanted_captures(context.conn)
    try:
        lag = _lag(context) if any(source.uses_wal for source in known) else 0
        for source in known:
            _try(context, source, wishes.get(source.relid), lag)
        tidy(context)
    except LOST as error:
        fall_back(context, error.detail)
    except MillstreamError as error:
        if not error.retryable:
            raise
        log.info("hand-over waits", reason=error.detail)


def _try(context: TransitionContext, source: Source, wish: WantedCapture | None, lag: int) -> None:
    """Take a source's next step; one that the server refuses does not stop the others."""
    try:
        _step(context, source, wish, lag)
    except (LockNotHad, psycopg.errors.LockNotAvailable) as error:
        log.debug("hand-over waits", source=source.qualified, reason=str(error))
    except (*LOST, WalBehind, ServerDown, SpillFailed):
        raise
    except (MillstreamError, psycopg.Error) as error:
        if context.conn.closed:
            raise
        if isinstance(error, psycopg.Error) and transient_trouble(code_of(error)):
            log.info("hand-over waits", source=source.qualified, reason=str(error))
            return
        _give_up(context, source, f"{RETURNED}{str(error).strip()}")


def _step(context: TransitionContext, source: Source, wish: WantedCapture | None, lag: int) -> None:
    if source.cutovers:
        cutover.settle(context.conn, source.relid)
    if wish is None:
        return
    unwanted = _unwanted(context, wish)
    if source.mode == "TRIGGER" and wish.is_read and not unwanted:
        _begin(context, source)
    elif source.mode == "TRANSITIONING":
        _go_on(context, source, unwanted)
    elif source.mode == "WAL":
        _stay(context, source, unwanted or _trouble(context, source, lag))


def _unwanted(context: TransitionContext, wish: WantedCapture) -> str:
    """Why a source is to be captured by triggers, if it is."""
    if wish.is_stream_table:
        return "It is a stream table, read in the transaction that writes it."
    modes = {mode or context.settings.cdc_mode for mode in wish.modes}
    return "A reader wants triggers." if "trigger" in modes else ""


# -- to the log ------------------------------------------------------------------------------


def _begin(context: TransitionContext, source: Source) -> None:
    """Hand a source over, if nothing stands in the way."""
    if time.monotonic() - context.steps.asked_at.get(source.relid, float("-inf")) < AGAIN or _rests(source):
        return
    context.steps.asked_at[source.relid] = time.monotonic()
    why = obstacle(context, source)
    if why:
        if why != source.reason:
            log.info("stays on triggers", source=source.qualified, reason=why)
            sources.set_reason(context.conn, source.relid, why)
        return
    cutover.begin(context.conn, source.relid)
    tell(context, source, "TRANSITIONING")
    cutover.publish(context.conn, context.dsn, source.relid)
    context.follower.follow()


def explain(context: TransitionContext, wanted: Sequence[Source]) -> list[str]:
    """Record why sources cannot be captured from the log, where they cannot; return it source by source."""
    found = [(source, why) for source in wanted if (why := obstacle(context, source))]
    for source, why in found:
        sources.set_reason(context.conn, source.relid, why)
    return [f"{source.schema}.{source.name} is captured by triggers. {why}" for source, why in found]


def obstacle(context: TransitionContext, source: Source) -> str:
    """Why a source cannot be captured from the log; empty when it can."""
    has_slot = slots.get(context.conn, slot.name_of(context.conn)) is not None
    return publication.obstacle(
        context.conn, source, has_slot=has_slot, may_set_identity=context.settings.auto_replica_identity
    )


def require(context: TransitionContext, wanted: Sequence[Source]) -> None:
    """Raise unless all of these can be captured from the log."""
    for source in wanted:
        why = obstacle(context, source)
        if why:
            hint = "Or leave it to Millstream: cdc_mode => 'auto' captures it by triggers until it can be."
            raise BadSource.of(f"{source.schema}.{source.name}", f"It cannot be captured from the log: {why}", hint)


def _rests(source: Source) -> bool:
    """Has it come back a short while ago, and not by the wish of its readers?"""
    came_back = source.reason is not None and source.reason.startswith(RETURNED)
    return came_back and source.mode_changed_at is not None and datetime.now(UTC) - source.mode_changed_at < REST


def _go_on(context: TransitionContext, source: Source, unwanted: str) -> None:
    """The next step of a source that is on its way to the log."""
    assert source.mode_changed_at is not None
    waited, longest = datetime.now(UTC) - source.mode_changed_at, context.settings.wal_transition_timeout
    if unwanted or waited > longest:
        late = (
            f"{RETURNED}the hand-over took longer than {longest.total_seconds():.0f} s. {_waits_for(context, source)}"
        )
        _give_up(context, source, unwanted or late)
    elif source.published_at is None:
        cutover.publish(context.conn, context.dsn, source.relid)
    elif cutover.is_whole(context.conn, source):
        context.follower.session()  # The log does come.
        if cutover.turn(context.conn, source.relid):
            _done(context, source)
    elif waited > longest / 4:
        context.follower.session()
        if cutover.turn_under_lock(context.conn, source.relid):
            _done(context, source)


def _done(context: TransitionContext, source: Source) -> None:
    tell(context, source, "WAL")
    notifications.alert(context.conn, "cdc_transition_complete", source=source.qualified)
    cutover.release(context.conn, source.relid)


def _give_up(context: TransitionContext, source: Source, reason: str) -> None:
    cutover.give_up(context.conn, source.relid, reason)
    if source.mode == "TRANSITIONING":
        tell(context, source, "TRIGGER")
    notifications.alert(context.conn, "cdc_transition_failed", source=source.qualified, reason=reason)


def _waits_for(context: TransitionContext, source: Source) -> str:
    """Who keeps a hand-over waiting, as far as we may see."""
    if source.published_at is None:
        return "The table could not be published."
    query = (
        "SELECT format('process %%s, transaction %%s since %%s', pid, backend_xid, xact_start) FROM pg_stat_activity "
        "WHERE backend_xid IS NOT NULL UNION ALL "
        "SELECT format('prepared transaction %%L since %%s', gid, prepared) FROM pg_prepared_xacts LIMIT 1"
    )
    row = context.conn.execute(query).fetchone()
    return f"It waits for {row[0]}." if row else "The log did not come."


# -- in charge of the log --------------------------------------------------------------------


def _trouble(context: TransitionContext, source: Source, lag: int) -> str:
    """Why a source should return to triggers while all is still told; empty when it should not."""
    if lag > context.settings.slot_lag_critical:
        return f"{RETURNED}the slot lags {lag >> 20} MB behind."
    lacking = publication.without_old_rows(context.conn, source)
    if lacking:
        return f"{RETURNED}the replica identity of {', '.join(map(str, lacking))} is no longer FULL."
    return ""


def _stay(context: TransitionContext, source: Source, reason: str) -> None:
    if reason:
        cutover.take_back(context.conn, source.relid, reason)
        tell(context, source, "TRIGGER")
    else:
        cutover.release(context.conn, source.relid)


def _lag(context: TransitionContext) -> int:
    """Bytes that the log has and we have not; whoever listens is told when they become many."""
    context.follower.follow()
    row = context.conn.execute("SELECT confirmed_lag_bytes, held_by FROM millstream.slot_health()").fetchone()
    lag: int = row[0] or 0 if row else 0
    if lag > context.settings.slot_lag_warning and not context.steps.has_warned and row:
        notifications.alert(context.conn, "slot_lag_warning", lag_bytes=lag, held_by=row[1])
    context.steps.has_warned = lag > context.settings.slot_lag_warning
    return lag


# -- without the log -------------------------------------------------------------------------


def fall_back(context: TransitionContext, reason: str) -> None:
    """The log is lost: triggers first, then all that it might have told is given up, and the slot."""
    left = list[str]()
    for source in sources.every(context.conn):
        if not source.uses_wal:
            continue
        why = f"{RETURNED}{reason}"
        if source.mode == "TRANSITIONING" and not source.cutovers:
            # Triggers have been in charge all the time: they have captured everything, and no reader starts anew.
            _give_up(context, source, why)
            continue
        try:
            cutover.lose(context.conn, source.relid, why)
        except MillstreamError as error:
            left.append(f"{source.qualified}: {error.message}")
            continue
        tell(context, source, "TRIGGER")
        notifications.alert(context.conn, "reinitialize_needed", source=source.qualified, reason=why)
    if left:
        log.error("still without triggers", sources=left)
        return
    context.follower.stop()
    _drop_slot(context.conn)


def tidy(context: TransitionContext) -> None:
    """A slot that nobody needs keeps log for nobody, and neither does a table that is published for nobody."""
    name = slot.name_of(context.conn)
    if slots.get(context.conn, name) is None:
        return
    if any(source.uses_wal for source in sources.every(context.conn)):
        with suppress(LockNotHad):
            cutover.unpublish(context.conn)
    else:
        context.follower.stop()
        _drop_slot(context.conn)


def _drop_slot(conn: Connection) -> None:
    try:
        slot.drop(conn, slot.name_of(conn))
    except psycopg.errors.ObjectInUse as error:
        log.info("the slot is in use", reason=str(error))


def tell(context: TransitionContext, source: Source, new: str) -> None:
    """A source is captured another way from now on."""
    log.info("captured another way", source=source.qualified, mode=new)
    notifications.transition(context.conn, source.qualified, source.mode, new, slot.name_of(context.conn))
