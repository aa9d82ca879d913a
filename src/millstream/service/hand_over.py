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

from millstream.capture import hand_over
from millstream.capture.wal import published, slot
from millstream.catalog import slots, sources
from millstream.catalog.sources import RETURNED, Source, Wish
from millstream.errors import (
    BadSource,
    LockNotHad,
    LogBehind,
    LogNotUnderstood,
    MillstreamError,
    ServerDown,
    SlotLost,
    SpillFailed,
)
from millstream.observe import log
from millstream.service import alerts
from millstream.service.app import App
from millstream.store.connection import Connection
from millstream.store.trouble import code_of, trouble_of

# Seconds between two looks at all sources, and between two at one that has to stay on its triggers.
EVERY = 1.0
AGAIN = 30.0
# A source that came back by itself is not handed over again before this.
REST = timedelta(minutes=10)
# After these the log cannot be gone on with.
LOST = (SlotLost, LogNotUnderstood)


def advance(app: App) -> None:
    """Take the next step of every hand-over, where it can be taken."""
    if time.monotonic() - app.steps.looked_at < EVERY:
        return
    app.steps.looked_at = time.monotonic()
    with app.mutex.exclusive("transitions") as is_ours:
        if is_ours:
            _advance(app)


def _advance(app: App) -> None:
    known, wishes = sources.every(app.conn), sources.wishes(app.conn)
    try:
        lag = _lag(app) if any(source.is_logged for source in known) else 0
        for source in known:
            _try(app, source, wishes.get(source.relid), lag)
        tidy(app)
    except LOST as error:
        fall_back(app, error.detail)
    except MillstreamError as error:
        if not error.retryable:
            raise
        log.info("hand-over waits", reason=error.detail)


def _try(app: App, source: Source, wish: Wish | None, lag: int) -> None:
    """Take a source's next step; one that the server refuses does not stop the others."""
    try:
        _step(app, source, wish, lag)
    except (LockNotHad, psycopg.errors.LockNotAvailable) as error:
        log.debug("hand-over waits", source=source.qualified, reason=str(error))
    except (*LOST, LogBehind, ServerDown, SpillFailed):
        raise
    except (MillstreamError, psycopg.Error) as error:
        if app.conn.closed:
            raise
        if isinstance(error, psycopg.Error) and trouble_of(code_of(error)):
            log.info("hand-over waits", source=source.qualified, reason=str(error))
            return
        _give_up(app, source, f"{RETURNED}{str(error).strip()}")


def _step(app: App, source: Source, wish: Wish | None, lag: int) -> None:
    if source.turns:
        hand_over.settle(app.conn, source.relid)
    if wish is None:
        return
    unwanted = _unwanted(app, wish)
    if source.mode == "TRIGGER" and wish.is_read and not unwanted:
        _begin(app, source)
    elif source.mode == "TRANSITIONING":
        _go_on(app, source, unwanted)
    elif source.mode == "WAL":
        _stay(app, source, unwanted or _trouble(app, source, lag))


def _unwanted(app: App, wish: Wish) -> str:
    """Why a source is to be captured by triggers, if it is."""
    if wish.is_stream_table:
        return "It is a stream table, read in the transaction that writes it."
    modes = {mode or app.settings.cdc_mode for mode in wish.modes}
    return "A reader wants triggers." if "trigger" in modes else ""


# -- to the log ------------------------------------------------------------------------------


def _begin(app: App, source: Source) -> None:
    """Hand a source over, if nothing stands in the way."""
    if time.monotonic() - app.steps.asked_at.get(source.relid, float("-inf")) < AGAIN or _rests(source):
        return
    app.steps.asked_at[source.relid] = time.monotonic()
    why = obstacle(app, source)
    if why:
        if why != source.reason:
            log.info("stays on triggers", source=source.qualified, reason=why)
            sources.explain(app.conn, source.relid, why)
        return
    hand_over.begin(app.conn, source.relid)
    tell(app, source, "TRANSITIONING")
    hand_over.publish(app.conn, app.dsn, source.relid)
    app.follower.follow()


def explain(app: App, wanted: Sequence[Source]) -> list[str]:
    """Record why sources cannot be captured from the log, where they cannot; return it source by source."""
    found = [(source, why) for source in wanted if (why := obstacle(app, source))]
    for source, why in found:
        sources.explain(app.conn, source.relid, why)
    return [f"{source.schema}.{source.name} is captured by triggers. {why}" for source, why in found]


def obstacle(app: App, source: Source) -> str:
    """Why a source cannot be captured from the log; empty when it can."""
    has_slot = slots.get(app.conn, slot.name_of(app.conn)) is not None
    return published.obstacle(app.conn, source, has_slot=has_slot, may_set_identity=app.settings.auto_replica_identity)


def require(app: App, wanted: Sequence[Source]) -> None:
    """Raise unless all of these can be captured from the log."""
    for source in wanted:
        why = obstacle(app, source)
        if why:
            hint = "Or leave it to Millstream: cdc_mode => 'auto' captures it by triggers until it can be."
            raise BadSource.of(f"{source.schema}.{source.name}", f"It cannot be captured from the log: {why}", hint)


def _rests(source: Source) -> bool:
    """Has it come back a short while ago, and not by the wish of its readers?"""
    came_back = source.reason is not None and source.reason.startswith(RETURNED)
    return came_back and source.turned_at is not None and datetime.now(UTC) - source.turned_at < REST


def _go_on(app: App, source: Source, unwanted: str) -> None:
    """The next step of a source that is on its way to the log."""
    assert source.turned_at is not None
    waited, longest = datetime.now(UTC) - source.turned_at, app.settings.wal_transition_timeout
    if unwanted or waited > longest:
        late = f"{RETURNED}the hand-over took longer than {longest.total_seconds():.0f} s. {_waits_for(app, source)}"
        _give_up(app, source, unwanted or late)
    elif source.published_at is None:
        hand_over.publish(app.conn, app.dsn, source.relid)
    elif hand_over.is_whole(app.conn, source):
        app.follower.session()  # The log does come.
        if hand_over.turn(app.conn, source.relid):
            _done(app, source)
    elif waited > longest / 4:
        app.follower.session()
        if hand_over.turn_under_lock(app.conn, source.relid):
            _done(app, source)


def _done(app: App, source: Source) -> None:
    tell(app, source, "WAL")
    alerts.alert(app.conn, "cdc_transition_complete", source=source.qualified)
    hand_over.release(app.conn, source.relid)


def _give_up(app: App, source: Source, reason: str) -> None:
    hand_over.give_up(app.conn, source.relid, reason)
    if source.mode == "TRANSITIONING":
        tell(app, source, "TRIGGER")
    alerts.alert(app.conn, "cdc_transition_failed", source=source.qualified, reason=reason)


def _waits_for(app: App, source: Source) -> str:
    """Who keeps a hand-over waiting, as far as we may see."""
    if source.published_at is None:
        return "The table could not be published."
    query = (
        "SELECT format('process %%s, transaction %%s since %%s', pid, backend_xid, xact_start) FROM pg_stat_activity "
        "WHERE backend_xid IS NOT NULL UNION ALL "
        "SELECT format('prepared transaction %%L since %%s', gid, prepared) FROM pg_prepared_xacts LIMIT 1"
    )
    row = app.conn.execute(query).fetchone()
    return f"It waits for {row[0]}." if row else "The log did not come."


# -- in charge of the log --------------------------------------------------------------------


def _trouble(app: App, source: Source, lag: int) -> str:
    """Why a source should return to triggers while all is still told; empty when it should not."""
    if lag > app.settings.slot_lag_critical:
        return f"{RETURNED}the slot lags {lag >> 20} MB behind."
    lacking = published.without_old_rows(app.conn, source)
    if lacking:
        return f"{RETURNED}the replica identity of {', '.join(map(str, lacking))} is no longer FULL."
    return ""


def _stay(app: App, source: Source, reason: str) -> None:
    if reason:
        hand_over.take_back(app.conn, source.relid, reason)
        tell(app, source, "TRIGGER")
    else:
        hand_over.release(app.conn, source.relid)


def _lag(app: App) -> int:
    """Bytes that the log has and we have not; whoever listens is told when they become many."""
    app.follower.follow()
    row = app.conn.execute("SELECT confirmed_lag_bytes, held_by FROM millstream.slot_health()").fetchone()
    lag: int = row[0] or 0 if row else 0
    if lag > app.settings.slot_lag_warning and not app.steps.has_warned and row:
        alerts.alert(app.conn, "slot_lag_warning", lag_bytes=lag, held_by=row[1])
    app.steps.has_warned = lag > app.settings.slot_lag_warning
    return lag


# -- without the log -------------------------------------------------------------------------


def fall_back(app: App, reason: str) -> None:
    """The log is lost: triggers first, then all that it might have told is given up, and the slot."""
    left = list[str]()
    for source in sources.every(app.conn):
        if not source.is_logged:
            continue
        why = f"{RETURNED}{reason}"
        if source.mode == "TRANSITIONING" and not source.turns:
            # Triggers have been in charge all the time: they have captured everything, and no reader starts anew.
            _give_up(app, source, why)
            continue
        try:
            hand_over.lose(app.conn, source.relid, why)
        except MillstreamError as error:
            left.append(f"{source.qualified}: {error.message}")
            continue
        tell(app, source, "TRIGGER")
        alerts.alert(app.conn, "reinitialize_needed", source=source.qualified, reason=why)
    if left:
        log.error("still without triggers", sources=left)
        return
    app.follower.stop()
    _drop_slot(app.conn)


def tidy(app: App) -> None:
    """A slot that nobody needs keeps log for nobody, and neither does a table that is published for nobody."""
    name = slot.name_of(app.conn)
    if slots.get(app.conn, name) is None:
        return
    if any(source.is_logged for source in sources.every(app.conn)):
        with suppress(LockNotHad):
            hand_over.unpublish(app.conn)
    else:
        app.follower.stop()
        _drop_slot(app.conn)


def _drop_slot(conn: Connection) -> None:
    try:
        slot.drop(conn, slot.name_of(conn))
    except psycopg.errors.ObjectInUse as error:
        log.info("the slot is in use", reason=str(error))


def tell(app: App, source: Source, new: str) -> None:
    """A source is captured another way from now on."""
    log.info("captured another way", source=source.qualified, mode=new)
    alerts.transition(app.conn, source.qualified, source.mode, new, slot.name_of(app.conn))
