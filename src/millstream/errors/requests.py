"""Errors about requests that roles send to the service (MS5xx).

The functions of schema millstream raise them, too.
"""

from __future__ import annotations

from typing import Self

from millstream.errors.base import MillstreamError


class RequestNotDone(MillstreamError):
    """A request was not done within the time that was given; it is not cancelled."""

    code = "MS501"
    retryable = True

    @classmethod
    def within(cls, id: int, seconds: float, status: str) -> Self:
        return cls(
            f"request {id} is not done after {seconds:g} seconds",
            detail=f"Its status is {status}.",
            hint=f"It is not cancelled. Wait for it with: CALL millstream.wait_for({id}). Or work without the service: "
            "repeat the command with --direct.",
            id=id,
            status=status,
        )


class NoSuchRequest(MillstreamError):
    """The current role has made no request of that number."""

    code = "MS502"

    @classmethod
    def numbered(cls, id: int) -> Self:
        return cls(
            f"request {id} does not exist",
            hint="A request is seen only by the role that made it, until its age exceeds history_retention.",
            id=id,
        )


class TooManyRequests(MillstreamError):
    """A role has so many requests that are not done that it may make no further ones."""

    code = "MS503"
    retryable = True

    @classmethod
    def of(cls, message: str, hint: str) -> Self:
        return cls(message, hint=hint)


class NotVisibleYet(MillstreamError):
    """A stream table did not have all changes that a snapshot sees within the time that was given."""

    code = "MS505"
    retryable = True

    @classmethod
    def of(cls, name: str) -> Self:
        return cls(
            f'stream table "{name}" does not have all changes yet',
            hint="Wait longer, or ask for a refresh: SELECT millstream.refresh_stream_table(...). One that it reads "
            "may be suspended or manual.",
            name=name,
        )


class RequestInterrupted(MillstreamError):
    """The service ended while it worked on a request, and whether that was done cannot be decided
    any more.
    """

    code = "MS504"

    @classmethod
    def of(cls, kind: str, name: str) -> Self:
        return cls(
            f'the request to {kind} "{name}" was interrupted',
            detail="The service ended while it worked on it. What it had not committed has been undone.",
            hint="See the stream tables with: SELECT * FROM millstream.stream_tables_info. Then ask again.",
            kind=kind,
            name=name,
        )
