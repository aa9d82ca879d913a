"""Move sources between trigger capture and WAL capture, one step per tick.

Each step is recorded before the next one, and can be repeated: if the process is killed anywhere,
every source is still captured in full, and the next process continues. A step waits for a lock only
briefly; if it does not get the lock, the next tick tries again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psycopg

from millstream.capture.transition import cutover, lag
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
from millstream.settings import print_size

# Seconds between two checks of all sources, and between two checks of a source that must stay on
# triggers.
EVERY = 1.0
AGAIN = 30.0
# A source that returned to triggers after a failure does not start another transition before this.
REST = timedelta(minutes=10)
# Errors after which WAL capture cannot resume.
LOST = (SlotLost, WalNotUnderstood)


def advance(context: TransitionContext) -> None:
    """Take the next step of every transition that can take one."""
    if time.monotonic() - context.steps.looked_at < EVERY:
        return
    context.steps.looked_at = time.monotonic()
    with context.mutex.exclusive("transitions") as is_ours:
        if is_ours:
            _advance(context)


def _advance(context: TransitionContext) -> None:
    known = sources.every(context.conn)
    wanted = sources.wanted_captures(context.conn)
    try:
        behind = 0
        if any(source.uses_wal for source in known):
            context.follower.follow()
            behind = lag.check(context.conn, context.settings, context.steps.lag)
        for source in known:
            _try(context, source, wanted.get(source.relid), behind)
        tidy(context)
    except LOST as error:
        fall_back(context, error.detail)
    except MillstreamError as error:
        if not error.retryable:
            raise
        log.info("CDC transition waits", reason=error.detail)


def _try(
    context: TransitionContext, source: Source, wish: WantedCapture | None, behind: int
) -> None:
    """Take the next step of a source.

    A step that the server refuses does not stop the other sources.
    """
    try:
        _step(context, source, wish, behind)
    except (LockNotHad, psycopg.errors.LockNotAvailable) as error:
        log.debug("CDC transition waits", source=source.qualified, reason=str(error))
    except (*LOST, WalBehind, ServerDown, SpillFailed):
        raise
    except (MillstreamError, psycopg.Error) as error:
        if context.conn.closed:
            raise
        if isinstance(error, psycopg.Error) and transient_trouble(code_of(error)):
            log.info("CDC transition waits", source=source.qualified, reason=str(error))
            return
        _give_up(context, source, f"{RETURNED}{str(error).strip()}")


def _step(
    context: TransitionContext, source: Source, wish: WantedCapture | None, behind: int
) -> None:
    if source.cutovers:
        cutover.forget_cutovers(context.conn, source.relid)
    if wish is None:
        return
    unwanted = _unwanted(context, wish)
    if source.mode == "TRIGGER" and wish.is_read and not unwanted:
        _begin(context, source)
    elif source.mode == "TRANSITIONING":
        _go_on(context, source, unwanted)
    elif source.mode == "WAL":
        _stay(context, source, unwanted or _trouble(context, source, behind))


def _unwanted(context: TransitionContext, wish: WantedCapture) -> str:
    """Return why a source must be captured by triggers; "" if it need not."""
    if wish.is_stream_table:
        return "It is a stream table, read in the transaction that writes it."
    modes = {mode or context.settings.cdc_mode for mode in wish.modes}
    return "A stream table that reads it asks for trigger capture." if "trigger" in modes else ""


# -- from triggers to WAL --------------------------------------------------------------------


def _begin(context: TransitionContext, source: Source) -> None:
    """Start the transition of a source to WAL, unless there is an obstacle."""
    if time.monotonic() - context.steps.asked_at.get(source.relid, float("-inf")) < AGAIN or _rests(
        source
    ):
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
    """Record and return, for each source that cannot be captured from WAL, the reason."""
    found = [(source, why) for source in wanted if (why := obstacle(context, source))]
    for source, why in found:
        sources.set_reason(context.conn, source.relid, why)
    return [
        f"{source.schema}.{source.name} is captured by triggers. {why}" for source, why in found
    ]


def obstacle(context: TransitionContext, source: Source) -> str:
    """Return why a source cannot be captured from WAL; "" if it can."""
    has_slot = slots.get(context.conn, slot.name_of(context.conn)) is not None
    return publication.obstacle(
        context.conn,
        source,
        has_slot=has_slot,
        may_set_identity=context.settings.auto_replica_identity,
    )


def require(context: TransitionContext, wanted: Sequence[Source]) -> None:
    """Raise BadSource unless all these sources can be captured from WAL."""
    for source in wanted:
        why = obstacle(context, source)
        if why:
            hint = "Or use cdc_mode => 'auto': triggers capture it until WAL capture is possible."
            raise BadSource.of(
                f"{source.schema}.{source.name}", f"It cannot be captured from WAL: {why}", hint
            )


def _rests(source: Source) -> bool:
    """Return True if the source returned to triggers after a failure a short while ago."""
    came_back = source.reason is not None and source.reason.startswith(RETURNED)
    return (
        came_back
        and source.mode_changed_at is not None
        and datetime.now(UTC) - source.mode_changed_at < REST
    )


def _go_on(context: TransitionContext, source: Source, unwanted: str) -> None:
    """Take the next step of a source that is moving to WAL."""
    assert source.mode_changed_at is not None
    waited, longest = (
        datetime.now(UTC) - source.mode_changed_at,
        context.settings.wal_transition_timeout,
    )
    if unwanted or waited > longest:
        late = (
            f"{RETURNED}the transition took longer than "
            f"{longest.total_seconds():.0f} s. {_waits_for(context, source)}"
        )
        _give_up(context, source, unwanted or late)
    elif source.published_at is None:
        cutover.publish(context.conn, context.dsn, source.relid)
    elif cutover.may_switch(context.conn, source):
        context.follower.session()  # Raises unless WAL arrives.
        if cutover.switch_to_wal(context.conn, source.relid):
            _done(context, source)
    elif waited > longest / 4:
        context.follower.session()
        if cutover.switch_under_lock(context.conn, source.relid):
            _done(context, source)


def _done(context: TransitionContext, source: Source) -> None:
    tell(context, source, "WAL")
    notifications.alert(context.conn, "cdc_transition_complete", source=source.qualified)
    cutover.drop_triggers(context.conn, source.relid)


def _give_up(context: TransitionContext, source: Source, reason: str) -> None:
    cutover.stay_on_triggers(context.conn, source.relid, reason)
    if source.mode == "TRANSITIONING":
        tell(context, source, "TRIGGER")
    notifications.alert(
        context.conn, "cdc_transition_failed", source=source.qualified, reason=reason
    )


def _waits_for(context: TransitionContext, source: Source) -> str:
    """Describe the transaction that a transition waits for, as far as our role may see it."""
    if source.published_at is None:
        return "The table could not be published."
    query = (
        "SELECT format('process %%s, transaction %%s since %%s', pid, backend_xid, xact_start) FROM pg_stat_activity "
        "WHERE backend_xid IS NOT NULL UNION ALL "
        "SELECT format('prepared transaction %%L since %%s', gid, prepared) FROM pg_prepared_xacts LIMIT 1"
    )
    row = context.conn.execute(query).fetchone()
    return f"It waits for {row[0]}." if row else "WAL capture did not catch up."


# -- captured from WAL -----------------------------------------------------------------------


def _trouble(context: TransitionContext, source: Source, behind: int) -> str:
    """Return why a source should return to triggers while WAL still holds every change; "" if it
    should not.
    """
    if behind > context.settings.slot_lag_critical:
        return f"{RETURNED}the replication slot lags more than {print_size(context.settings.slot_lag_critical)} behind."
    lacking = publication.without_old_rows(context.conn, source)
    if lacking:
        return (
            f"{RETURNED}the replica identity of {', '.join(map(str, lacking))} is no longer FULL."
        )
    return ""


def _stay(context: TransitionContext, source: Source, reason: str) -> None:
    if reason:
        cutover.return_to_triggers(context.conn, source.relid, reason)
        tell(context, source, "TRIGGER")
    else:
        cutover.drop_triggers(context.conn, source.relid)


# -- after WAL was lost ----------------------------------------------------------------------


def give_up_wal(context: TransitionContext, reason: str) -> None:
    """Return all sources to triggers, unless another process takes a step right now."""
    with context.mutex.exclusive("transitions") as is_ours:
        if is_ours:
            fall_back(context, reason)


def fall_back(context: TransitionContext, reason: str) -> None:
    """Return all sources to triggers after WAL was lost: install triggers, have readers
    reinitialise, drop the slot.
    """
    left = list[str]()
    for source in sources.every(context.conn):
        if not source.uses_wal:
            continue
        why = f"{RETURNED}{reason}"
        if source.mode == "TRANSITIONING" and not source.cutovers:
            # Triggers have captured everything all the time, so no reader has to reinitialise.
            _give_up(context, source, why)
            continue
        try:
            cutover.abandon_wal(context.conn, source.relid, why)
        except MillstreamError as error:
            left.append(f"{source.qualified}: {error.message}")
            continue
        tell(context, source, "TRIGGER")
        notifications.alert(
            context.conn, "reinitialize_needed", source=source.qualified, reason=why
        )
    if left:
        log.error("still without triggers", sources=left)
        return
    context.follower.stop()
    _drop_slot(context.conn)


def tidy(context: TransitionContext) -> None:
    """Drop the slot if no source needs it any more; otherwise unpublish tables that need not be
    published.
    """
    name = slot.name_of(context.conn)
    if slots.get(context.conn, name) is None:
        return
    if any(source.uses_wal for source in sources.every(context.conn)):
        # A table is in use: the next look unpublishes it.
        with suppress(LockNotHad):
            cutover.unpublish_unused(context.conn)
    else:
        context.follower.stop()
        _drop_slot(context.conn)


def _drop_slot(conn: Connection) -> None:
    try:
        slot.drop(conn, slot.name_of(conn))
    except psycopg.errors.ObjectInUse as error:
        log.info("the slot is in use", reason=str(error))


def tell(context: TransitionContext, source: Source, new: str) -> None:
    """Log and notify that a source has another capture mode from now on."""
    log.info("capture mode changed", source=source.qualified, mode=new)
    notifications.transition(
        context.conn, source.qualified, source.mode, new, slot.name_of(context.conn)
    )
