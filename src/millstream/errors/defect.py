"""Bugs in Millstream, and tables that were changed behind its back (MS9xx)."""

from __future__ import annotations

from typing import Self

from millstream.errors.base import MillstreamError, typed


class PlanningFailed(MillstreamError):
    """Planning a query raised an unexpected exception; nothing was created or changed."""

    code = "MS902"

    @classmethod
    def at(cls, part: str, error: Exception) -> Self:
        reason = (str(error).strip().splitlines() or [""])[0]
        return cls(
            "the query could not be planned",
            detail=f"While planning {part or 'the query'}: {type(error).__name__}: {reason}",
            hint="This is a bug in Millstream: please report it with the query and this message. Until it is fixed, "
            "write that part differently, or compute it in a view over a stream table.",
            part=part,
        )


class InternalError(MillstreamError):
    """An unexpected exception; `__cause__` is the original."""

    code = "MS903"

    @classmethod
    def of(cls, error: BaseException) -> Self:
        return cls(
            "unexpected error in Millstream",
            detail=f"{type(error).__name__}: {error}",
            hint="Please report it with the traceback, which is in `__cause__`; `millstream --verbose` prints it.",
        )


class TargetDiffers(MillstreamError):
    """The table of a stream table does not have the rows or the index that the last refresh left."""

    code = "MS901"

    @classmethod
    def at(cls, name: str, what: str) -> Self:
        return cls(
            f'stream table "{name}" was changed since the last refresh',
            detail=what,
            hint=f"Was it written to by hand? Repair it with: millstream refresh --full {typed(name)}",
            name=name,
        )

    @classmethod
    def without_index(cls, name: str, columns: str, statement: str) -> Self:
        return cls(
            f'stream table "{name}" was changed since the last refresh',
            detail=f"Its unique index on ({columns}), which identifies its rows, is gone.",
            hint=f"Create the index again: {statement}; "
            f"Or drop the stream table with: millstream drop {typed(name)}. Then create it again.",
            name=name,
        )
