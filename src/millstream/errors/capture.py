"""Capture of changes from a source (MS3xx)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from millstream.errors.base import MillstreamError


class SourceChanged(MillstreamError):
    """A source no longer has the shape the stream table was created over."""

    code = "MS301"

    @classmethod
    def shape(cls, source: str, what: str) -> Self:
        return cls(
            f'source "{source}" has changed',
            detail=what,
            hint="Drop the stream table and create it again over the new shape.",
            source=source,
        )

    @classmethod
    def query(cls, name: str, what: str) -> Self:
        return cls(
            f'the query of stream table "{name}" no longer holds',
            detail=what,
            hint="Give the source back what the query uses, or drop the stream table and create it again.",
            name=name,
        )

    @classmethod
    def key(cls, name: str, columns: tuple[str, ...]) -> Self:
        return cls(
            f'the rows of stream table "{name}" are no longer told apart by their key',
            detail=f"It was created with the key ({', '.join(columns)}), which a key of its sources vouched for.",
            hint="Give the source its primary key or unique index back, or drop the stream table and create it again.",
            source=name,
        )


class LockNotHad(MillstreamError):
    """A lock on a source or a stream table was not to be had in time."""

    code = "MS302"
    retryable = True

    @classmethod
    def somewhere(cls, seconds: float, holders: Sequence[str]) -> Self:
        held = f"Locks are held by {', '.join(holders)}." if holders else "Whoever held it has ended by now."
        return cls(
            f"a lock was not to be had within {seconds:g} s",
            detail=f"{held} Nothing was done.",
            hint="Try again when that transaction has ended (see pg_stat_activity and pg_prepared_xacts).",
            holders=list(holders),
        )

    @classmethod
    def installing(cls, database: str, seconds: float, holders: Sequence[str]) -> Self:
        held = f"It is one of: {', '.join(holders)}." if holders else "Its transaction has just ended."
        return cls(
            f'another session creates or upgrades schema millstream in database "{database}", and has not ended',
            detail=f"We waited {seconds:g} s for it. {held}",
            hint="Try again when that transaction has ended (see pg_stat_activity).",
            database=database,
            holders=list(holders),
        )

    @classmethod
    def on(cls, source: str, seconds: float, *, holders: list[str] | None = None) -> Self:
        held = f"It is held by {', '.join(holders)}. " if holders else "A long transaction writes to it. "
        return cls(
            f"could not lock {source} within {seconds:g} s",
            detail=held + "We do not make other writers queue behind us.",
            hint="Try again when that transaction has ended (see pg_stat_activity and pg_prepared_xacts).",
            source=source,
            holders=holders or [],
        )

    @classmethod
    def by_reader(cls, source: str) -> Self:
        return cls(
            f"could not read {source}: it is locked",
            detail="Another transaction has truncated or altered it, or waits to, and has not committed.",
            hint="Try again when that transaction has ended (see pg_locks and pg_prepared_xacts).",
            source=source,
            holders=[],
        )

    @classmethod
    def by_writer(cls, name: str, reason: str) -> Self:
        return cls(
            f'could not write to stream table "{name}": it is locked',
            detail=reason.strip(),
            hint="It is tried again at the next tick; see pg_locks for who holds the lock.",
            source=name,
            holders=[],
        )


class SlotLost(MillstreamError):
    """The slot is not the one we left, or no longer holds changes we still need."""

    code = "MS303"

    @classmethod
    def because(cls, slot: str, what: str) -> Self:
        return cls(
            f'replication slot "{slot}" cannot be continued from',
            detail=what,
            hint="Changes may be missing: have its sources captured by triggers, and refresh their readers in full.",
            slot=slot,
        )


class WalBroken(MillstreamError):
    """The connection that brings the log has ended or fallen silent."""

    code = "MS304"
    retryable = True

    @classmethod
    def off(cls, slot: str, reason: str) -> Self:
        return cls(
            f'the log of slot "{slot}" is interrupted',
            detail=reason.strip(),
            hint="It is taken up again by itself, from what is durable.",
            slot=slot,
        )


class WalNotUnderstood(MillstreamError):
    """A message of the log that does not read as PostgreSQL describes it."""

    code = "MS305"

    @classmethod
    def at(cls, data: bytes, why: str) -> Self:
        return cls(
            "a message of the log cannot be read",
            detail=f"It has {len(data)} bytes and starts with {data[:40]!r}: {why}.",
            hint="Please report it, with the server's version; nothing after it has been captured.",
        )


class WalBehind(MillstreamError):
    """What the log has to tell up to the cut is not there yet."""

    code = "MS307"
    retryable = True

    @classmethod
    def after(cls, seconds: float, what: str) -> Self:
        return cls(
            f"the log has not come as far as the cut in {seconds:.0f} s",
            detail=what,
            hint="It is on its way; the next refresh goes on. `millstream health` tells how far it is.",
        )


class SpillFailed(MillstreamError):
    """A large transaction of the log could not be written to the disk of this machine."""

    code = "MS308"
    retryable = True

    @classmethod
    def into(cls, directory: str, reason: str) -> Self:
        return cls(
            f"the changes of a large transaction do not fit into {directory}",
            detail=f"{reason}. They wait in the server's log; what is captured by triggers goes on.",
            hint=f"Make room in {directory}, or restart with the variable TMPDIR set to a larger directory.",
            directory=directory,
        )


class WalTakenOver(MillstreamError):
    """Another process has begun to read the log of this database."""

    code = "MS306"

    @classmethod
    def by_other(cls, slot: str) -> Self:
        return cls(
            f'another process reads the log of slot "{slot}" now',
            detail="One process per database captures from the log; what this one had not yet stored, the other will.",
            hint="Stop one of the two.",
            slot=slot,
        )
