"""Errors of change capture (MS3xx)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from millstream.errors.base import MillstreamError


class SourceChanged(MillstreamError):
    """A source no longer has the columns, types or key that the stream table was created with."""

    code = "MS301"
    waits = True

    @classmethod
    def shape(cls, source: str, what: str) -> Self:
        return cls(
            f'source "{source}" has changed',
            detail=what,
            hint="Restore what the query needs in the source; the stream table is then refreshed by itself. Or drop "
            "the stream table and create it again.",
            source=source,
        )

    @classmethod
    def query(cls, name: str, what: str) -> Self:
        return cls(
            f'the query of stream table "{name}" is no longer valid',
            detail=what,
            hint="Restore what the query needs in the source; the stream table is then refreshed by itself. Or drop "
            "the stream table and create it again.",
            name=name,
        )

    @classmethod
    def storage(cls, name: str, table: str, what: str) -> Self:
        return cls(
            f'the table of stream table "{name}" cannot get the columns that its query has now',
            detail=what,
            hint=f"Drop what depends on that column of {table}; create it again when the table has the new columns.",
            name=name,
        )

    @classmethod
    def key(cls, name: str, columns: tuple[str, ...]) -> Self:
        return cls(
            f'the key of stream table "{name}" no longer identifies its rows',
            detail=f"The key is ({', '.join(columns)}). It was unique because of a key of a source that is gone.",
            hint="Create the source's primary key or unique index again, or drop the stream table and create it again.",
            source=name,
        )


class LockNotHad(MillstreamError):
    """A lock on a source or a stream table was not granted in time."""

    code = "MS302"
    retryable = True
    skips = True

    @classmethod
    def somewhere(cls, seconds: float, holders: Sequence[str]) -> Self:
        held = (
            f"Locks are held by {', '.join(holders)}."
            if holders
            else "The holder's transaction has ended since."
        )
        return cls(
            f"could not obtain a lock within {seconds:g} s",
            detail=f"{held} Nothing was changed.",
            hint="Try again after that transaction has ended (see pg_stat_activity and pg_prepared_xacts).",
            holders=list(holders),
        )

    @classmethod
    def installing(cls, database: str, seconds: float, holders: Sequence[str]) -> Self:
        held = (
            f"Possible holders: {', '.join(holders)}."
            if holders
            else "Its transaction has ended since."
        )
        return cls(
            f'another session is creating or upgrading schema millstream in database "{database}"',
            detail=f"Millstream waited {seconds:g} s for it. {held}",
            hint="Try again after that transaction has ended (see pg_stat_activity).",
            database=database,
            holders=list(holders),
        )

    @classmethod
    def on(cls, source: str, seconds: float, *, holders: list[str] | None = None) -> Self:
        held = (
            f"It is held by {', '.join(holders)}. "
            if holders
            else "A long transaction is writing to it. "
        )
        return cls(
            f"could not lock {source} within {seconds:g} s",
            detail=held
            + "Millstream stopped waiting so that other writers do not queue behind it.",
            hint="Try again after that transaction has ended (see pg_stat_activity and pg_prepared_xacts).",
            source=source,
            holders=holders or [],
        )

    @classmethod
    def by_reader(cls, source: str) -> Self:
        return cls(
            f"could not read {source}: it is locked",
            detail="A transaction that has not committed has truncated or altered it, or is waiting to.",
            hint="Try again after that transaction has ended (see pg_locks and pg_prepared_xacts).",
            source=source,
            holders=[],
        )

    @classmethod
    def by_writer(cls, name: str, reason: str) -> Self:
        return cls(
            f'could not write to stream table "{name}": it is locked',
            detail=reason.strip(),
            hint="The next tick tries again. See pg_locks for the session that holds the lock.",
            source=name,
            holders=[],
        )


class SlotLost(MillstreamError):
    """The replication slot is missing, was replaced, or no longer has changes that are still
    needed.
    """

    code = "MS303"

    @classmethod
    def because(cls, slot: str, what: str) -> Self:
        return cls(
            f'cannot resume from replication slot "{slot}"',
            detail=what,
            hint="Changes may be missing. Capture its sources by triggers (cdc_mode = trigger), and refresh the stream "
            "tables that read them in full.",
            slot=slot,
        )


class WalBroken(MillstreamError):
    """The replication connection has ended or no longer answers."""

    code = "MS304"
    retryable = True

    @classmethod
    def off(cls, slot: str, reason: str) -> Self:
        return cls(
            f'WAL streaming from slot "{slot}" was interrupted',
            detail=reason.strip(),
            hint="Millstream reconnects and resumes from the last durable position; no action is needed.",
            slot=slot,
        )


class WalNotUnderstood(MillstreamError):
    """A logical decoding message does not have the format that PostgreSQL documents."""

    code = "MS305"

    @classmethod
    def at(cls, data: bytes, why: str) -> Self:
        return cls(
            "cannot decode a message of the WAL stream",
            detail=f"It has {len(data)} bytes and starts with {data[:40]!r}: {why}.",
            hint="Please report it with the server's version. No change after this message was captured.",
        )


class WalBehind(MillstreamError):
    """WAL capture has not reached the snapshot of the refresh."""

    code = "MS307"
    retryable = True

    @classmethod
    def after(cls, seconds: float, what: str) -> Self:
        return cls(
            f"WAL capture did not reach the snapshot of the refresh within {seconds:.0f} s",
            detail=what,
            hint="Capture continues, and the next refresh tries again. `millstream health` shows the lag.",
        )


class SpillFailed(MillstreamError):
    """The changes of a large transaction could not be spilled to disk on this machine."""

    code = "MS308"
    retryable = True

    @classmethod
    def into(cls, directory: str, reason: str) -> Self:
        return cls(
            f"the changes of a large transaction do not fit into {directory}",
            detail=f"{reason}. The server keeps them in WAL; capture by triggers continues.",
            hint=f"Make room in {directory}, or restart with the variable TMPDIR set to a larger directory.",
            directory=directory,
        )


class WalTakenOver(MillstreamError):
    """Another process has begun to capture from WAL in this database."""

    code = "MS306"

    @classmethod
    def by_other(cls, slot: str) -> Self:
        return cls(
            f'another process is now reading slot "{slot}"',
            detail="One process per database captures from WAL. The other one stores what this one has not stored yet.",
            hint="Stop one of the two processes.",
            slot=slot,
        )
