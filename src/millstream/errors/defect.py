"""A broken promise of Millstream's own (MS9xx): please report it."""

from __future__ import annotations

from typing import Self

from millstream.errors.base import MillstreamError, typed


class PlanningFailed(MillstreamError):
    """Planning a query raised something unexpected; nothing was created or changed."""

    code = "MS902"

    @classmethod
    def at(cls, part: str, error: Exception) -> Self:
        reason = (str(error).strip().splitlines() or [""])[0]
        return cls(
            "the query could not be planned",
            detail=f"While planning {part or 'the query'}: {type(error).__name__}: {reason}",
            hint="This is a defect of Millstream: please report it, with the query and this message. Until it is "
            "mended, write that part in another way, or compute it in a view over a stream table.",
            part=part,
        )


class InternalError(MillstreamError):
    """An error that Millstream did not expect; its `__cause__` has the traceback."""

    code = "MS903"

    @classmethod
    def of(cls, error: BaseException) -> Self:
        return cls(
            "Millstream met an error that it did not expect",
            detail=f"{type(error).__name__}: {error}",
            hint="Please report it, with the traceback: that of `__cause__`, or what `millstream --verbose` prints.",
        )


class TargetDiffers(MillstreamError):
    """The stored table is not what the last refresh left behind."""

    code = "MS901"

    @classmethod
    def at(cls, name: str, what: str) -> Self:
        return cls(
            f'stream table "{name}" is not as the last refresh left it',
            detail=what,
            hint=f"Was it written to by hand? Repair it with: millstream refresh --full {typed(name)}",
            name=name,
        )

    @classmethod
    def without_index(cls, name: str, columns: str, statement: str) -> Self:
        return cls(
            f'stream table "{name}" is not as the last refresh left it',
            detail=f"Its unique index over ({columns}), which tells its rows apart, is gone.",
            hint=f"Create the index again: {statement}; "
            f"Or drop the stream table with: millstream drop {typed(name)}. Then create it again.",
            name=name,
        )
