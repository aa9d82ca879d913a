"""Errors of a refresh (MS4xx)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from millstream.errors.base import MillstreamError, typed


class Busy(MillstreamError):
    """Another session is refreshing, creating or dropping the same stream table."""

    code = "MS401"
    retryable = True
    skips = True

    @classmethod
    def adopting(cls, holder: str | None) -> Self:
        return cls(
            "another process is adopting the catalog, or moving sources between triggers and WAL",
            detail=f"The lock is held by {holder or 'a session that has just ended'}.",
            hint="Try again when it has finished.",
            holder=holder,
        )

    @classmethod
    def working_on(cls, name: str, holder: str | None, seconds: float = 0.0) -> Self:
        waited = f" Millstream waited {seconds:g} s for it." if seconds else ""
        return cls(
            f'stream table "{name}" is in use by another session',
            detail=f"The lock is held by {holder or 'a session that has just ended'}.{waited}",
            hint="Try again when it has finished.",
            name=name,
            holder=holder,
        )


class RefreshFailed(MillstreamError):
    """PostgreSQL or Spark raised an error while refreshing; nothing was applied."""

    code = "MS402"

    @classmethod
    def because(cls, name: str, reason: str) -> Self:
        return cls(
            f'refresh of "{name}" failed',
            detail=reason,
            hint="Nothing was applied; the next refresh starts from the same frontier.",
            name=name,
        )


class ValueOutOfRange(MillstreamError):
    """Spark cannot represent a value exactly; the refresh fails rather than round it."""

    code = "MS403"

    @classmethod
    def in_column(cls, column: str, value: str) -> Self:
        return cls(
            f"a value of {column} cannot be computed exactly",
            detail=f"An expression over several tables uses it in Spark. {value} needs more digits than "
            "Spark's decimals have (38 in all; 20 before and 18 after the point if the column has no declared "
            "precision), or is not a number.",
            hint="Declare the column, or cast it in the query, as numeric(p,s) with p <= 38, or filter such rows out.",
            column=column,
            value=value,
        )


class RecursionTooDeep(MillstreamError):
    """A recursive query took more steps than `max_recursion_steps` allows; nothing was applied."""

    code = "MS405"

    @classmethod
    def after(cls, steps: int) -> Self:
        return cls(
            f"a recursive query has not ended after {steps} steps",
            detail="With UNION ALL, rows that lead back to themselves recurse forever, in PostgreSQL too.",
            hint="Use UNION, or stop at rows that are already in the path; or raise the setting max_recursion_steps.",
            steps=steps,
        )


class Conflict(MillstreamError):
    """A concurrent transaction changed rows that the refresh had read; trying again helps."""

    code = "MS404"
    retryable = True

    @classmethod
    def on(cls, name: str, reason: str) -> Self:
        return cls(
            f'refresh of "{name}" conflicts with a concurrent change',
            detail=reason,
            hint="Millstream tries again; no action is needed.",
            name=name,
        )


class LockTableFull(MillstreamError):
    """The server's lock table is too small for one transaction of a refresh; nothing was applied."""

    code = "MS406"
    retryable = True

    @classmethod
    def by_graph(
        cls, names: Sequence[str], locks: int, room: int, setting: int, needed: int
    ) -> Self:
        return cls(
            f'refreshing "{names[0]}" needs more locks than the server has room for',
            detail=f"It is one of {len(names)} stream tables that read each other and share a transaction. The "
            f"transaction needs about {locks} locks; there is room for {room}.",
            hint=f"Set max_locks_per_transaction to {needed} or more (it is {setting}) and restart the server; "
            "or raise the setting max_lock_share.",
            name=names[0],
            locks=locks,
            room=room,
            needed=needed,
        )

    @classmethod
    def at(cls, name: str, reason: str) -> Self:
        return cls(
            f'refresh of "{name}" failed because the server is out of memory',
            detail=reason,
            hint="Nothing was applied, and the next refresh tries again. If shared memory runs out repeatedly, raise "
            "max_locks_per_transaction and restart the server.",
            name=name,
        )


class Cancelled(MillstreamError):
    """A refresh was cancelled by Ctrl-C, pg_cancel_backend or in Spark. Nothing was applied; it is
    no failure.
    """

    code = "MS407"
    retryable = True

    @classmethod
    def by(cls, name: str, reason: str) -> Self:
        return cls(
            f'refresh of "{name}" was cancelled',
            detail=reason,
            hint=f"Nothing was applied. Refresh it again with: millstream refresh {typed(name)}",
            name=name,
        )


class ServerTrouble(MillstreamError):
    """The server, Spark or this machine is short of connections, memory, disk or time for the
    moment.
    """

    code = "MS408"
    retryable = True

    @classmethod
    def of(cls, name: str, what: str, reason: str, remedy: str, *, sqlstate: str = "") -> Self:
        return cls(
            f'refresh of "{name}" failed: {what}',
            detail=reason,
            hint=f"Nothing was applied. The next tick tries again; this error never suspends it. {remedy}".strip(),
            name=name,
            sqlstate=sqlstate,
        )


class Deposed(MillstreamError):
    """Another process of `millstream run` has become the leader; nothing was committed."""

    code = "MS409"
    retryable = True

    @classmethod
    def in_epoch(cls, number: int) -> Self:
        return cls(
            "this process no longer refreshes by schedule: another one has taken over",
            detail=f"Epoch {number} has ended. Its transaction was rolled back.",
            hint="No action is needed: this process becomes a standby.",
            epoch=number,
        )


class ProcessEnded(MillstreamError):
    """The process that refreshed a stream table ended before the refresh did; it is found in the
    history only.
    """

    code = "MS410"
    retryable = True

    @classmethod
    def while_refreshing(cls, name: str) -> Self:
        return cls(
            f'the process that refreshed "{name}" has ended before the refresh did',
            detail="It was killed, its machine has failed, or the server has ended its session.",
            hint="Nothing was applied; the next refresh starts from the same frontier.",
            name=name,
        )
