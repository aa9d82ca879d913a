"""Errors of the defining query: not supported, or invalid (MS1xx)."""

from __future__ import annotations

from typing import Self

from millstream.errors.base import MillstreamError


class QueryError(MillstreamError):
    """The defining query cannot be used; `position` is the character at fault, counted from 1."""

    code = "MS100"
    node: object = None
    """The expression or syntax node that the error is about; its place in the query becomes the
    position.
    """

    def about(self, node: object) -> Self:
        """Say which expression or syntax node the error is about."""
        self.node = node
        return self

    def at(self, position: int, excerpt: str = "") -> Self:
        """Add the position, and the line of the query in which it is marked."""
        self.facts["position"] = position
        self.detail = " ".join(part for part in (self.detail, excerpt) if part)
        return self


class BadQuery(QueryError):
    """PostgreSQL itself rejects the query."""

    code = "MS101"

    @classmethod
    def rejected(
        cls,
        message: str,
        *,
        sqlstate: str,
        detail: str,
        hint: str,
        position: int | None,
        excerpt: str,
    ) -> Self:
        return cls(
            message,
            detail=" ".join(part for part in (detail, excerpt) if part),
            hint=hint or "Run the query in psql until it works, then create the stream table.",
            sqlstate=sqlstate,
            position=position,
        )


class Unsupported(QueryError):
    """The query has a construct that Millstream does not maintain incrementally."""

    code = "MS102"

    @classmethod
    def construct(cls, what: str, *, reason: str, way_round: str, node: object = None) -> Self:
        """Refuse a construct; `node` is the expression or syntax node that it is, where one is at
        hand.
        """
        error = cls(
            f"{what} is not supported in a stream table",
            detail=reason,
            hint=way_round,
            construct=what,
            position=None,
        )
        return error.about(node)


class Volatile(QueryError):
    """The query calls a function whose result depends on more than its arguments."""

    code = "MS103"

    @classmethod
    def function(cls, name: str, volatility: str, hint: str) -> Self:
        return cls(
            f"function {name} is {volatility}, not immutable",
            detail="A stream table equals its query at one moment; the result of this function can change "
            "without a change in the data.",
            hint=hint,
            function=name,
            volatility=volatility,
            position=None,
        )

    @classmethod
    def construct(cls, what: str, hint: str) -> Self:
        return cls(
            f"{what} depends on settings of the session",
            detail="A stream table equals its query at one moment; this result can change without a change in "
            "the data.",
            hint=hint,
            function=what,
            volatility="stable",
            position=None,
        )


class BadSource(QueryError):
    """The query reads a relation whose changes cannot be captured."""

    code = "MS104"

    @classmethod
    def of(cls, name: str, reason: str, way_round: str) -> Self:
        return cls(
            f'"{name}" cannot be a source',
            detail=reason,
            hint=way_round,
            source=name,
            position=None,
        )


class Cycle(QueryError):
    """The stream table would read itself, directly or through views, functions and other stream
    tables.
    """

    code = "MS105"

    @classmethod
    def along(cls, name: str, path: str) -> Self:
        return cls(
            f'stream table "{name}" would read itself',
            detail=f"The path is: {path}. Its rows would depend on its own earlier rows.",
            hint="Change one of them so that it does not read the next one, or drop a stream table on the path.",
            name=name,
            path=path,
            position=None,
        )


class QueryTooDeep(QueryError):
    """The query is nested too deeply to be planned or evaluated; nothing was created or applied."""

    code = "MS106"

    @classmethod
    def planned(cls) -> Self:
        return cls(
            "the query is nested too deeply",
            detail="An expression, or a chain of set operations or joins, has more levels than the planner has room "
            "for (some thousands).",
            hint=_SHALLOWER,
        )

    @classmethod
    def evaluated(cls) -> Self:
        return cls(
            "the query is nested too deeply for Spark",
            detail="Spark's parser or optimizer ran out of stack.",
            hint=f"{_SHALLOWER} Or give Java a larger stack: add -Xss512m to spark.driver.extraJavaOptions.",
        )


_SHALLOWER = (
    "Write it with fewer levels: sum an array (SELECT sum(x) FROM unnest(ARRAY[a, b, ...]) AS x), concatenate with "
    "concat(a, b, ...), use = ANY (ARRAY[...]) instead of a chain of OR, or split it over several stream tables."
)
