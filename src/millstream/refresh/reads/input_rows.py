"""The rows of one input, as they are collected while keys travel along the join tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from millstream.refresh.reads.read_sql import ROW
from millstream.spark.scan import Scanned


@dataclass(frozen=True)
class LookedUpKeys:
    """Keys that were looked up by a column, and the rows that were found."""

    column: str
    keys: pa.ChunkedArray
    rows: pa.Table


@dataclass
class InputRows:
    """The rows of one input: those it starts with, and those that key messages brought."""

    first: pa.Table | None = None
    """The rows it starts with: images of changed rows, or rows of the table (see `as_stored`)."""
    found: list[pa.Table] = field(default_factory=list)
    """Stored rows by lookup; a row may be in several tables, and column `ROW` identifies it."""
    whole: pa.Table | Scanned | None = None
    """All rows of the input, if it was read in full."""
    crossing: pa.Table | Scanned | None = None
    """Stored rows that cross a temporal filter: they pass it before and not after, or the reverse.
    """
    lookups: list[LookedUpKeys] = field(default_factory=list)
    """The lookups by a single column, so that no key is looked up twice."""

    @classmethod
    def starting_with(
        cls, first: pa.Table | None, crossing: pa.Table | Scanned | None
    ) -> InputRows:
        """Return the rows of an input before any message is sent.

        Crossing rows that cannot be identified by column `ROW` are a read of the whole input.
        """
        if isinstance(crossing, pa.Table) and ROW in crossing.column_names:
            return cls(first, [crossing], None, crossing)
        return cls(first, [], crossing, crossing)

    def starting_rows(self) -> list[pa.Table | Scanned]:
        """Return the rows that messages start from; empty tables are left out."""
        return [
            rows
            for rows in (self.first, self.crossing)
            if rows is not None and _may_have_rows(rows)
        ]

    def has_rows(self) -> bool:
        """Return True if the input holds rows, or may: the rows of a scan are not counted here."""
        return any(_may_have_rows(rows) for rows in self._all())

    def split_known(self, column: str, keys: pa.Table) -> tuple[list[pa.Table], pa.Table]:
        """Return the rows of the keys that were looked up by this column before, and the keys that
        were not.
        """
        known = list[pa.Table]()
        for lookup in self.lookups:
            if lookup.column == column:
                known.append(
                    lookup.rows.filter(is_in(lookup.rows[column], keys.column(0), nulls=False))
                )
                keys = keys.filter(pc.invert(is_in(keys.column(0), lookup.keys, nulls=False)))
        return known, keys

    def tables(self) -> list[pa.Table] | None:
        """Return all rows; None if tasks of Spark read some, so that the driver does not hold them."""
        everything = self._all()
        tables = [rows for rows in everything if isinstance(rows, pa.Table)]
        return tables if len(tables) == len(everything) else None

    def reduce(self, reduction: Callable[[pa.Table], pa.Table]) -> InputRows:
        """Return the rows that a reduction leaves; it is not applied to rows that Spark reads."""
        first = reduction(self.first) if self.first is not None else None
        whole = reduction(self.whole) if isinstance(self.whole, pa.Table) else self.whole
        return InputRows(first, [reduction(rows) for rows in self.found], whole, self.crossing)

    def as_stored(self) -> InputRows:
        """Return the rows with `first` taken for stored rows, not images: a row that is found again
        counts once.
        """
        if self.first is None or self.whole is not None:
            return InputRows(whole=self.whole, found=self.found)
        located = ROW in self.first.column_names
        return (
            InputRows(found=[self.first, *self.found]) if located else InputRows(whole=self.first)
        )

    def _all(self) -> list[pa.Table | Scanned]:
        return [rows for rows in (self.first, self.whole, *self.found) if rows is not None]


def _may_have_rows(rows: pa.Table | Scanned) -> bool:
    return isinstance(rows, Scanned) or rows.num_rows > 0


def is_in(values: pa.ChunkedArray, others: pa.ChunkedArray, *, nulls: bool) -> pa.ChunkedArray:
    """Return for each value whether it is among the others; a NULL is among NULLs only with
    `nulls`.

    Integers of different widths are compared as 64-bit integers.
    """
    if values.type != others.type:
        values, others = values.cast(pa.int64()), others.cast(pa.int64())
    return pc.is_in(values, value_set=others, skip_nulls=not nulls)
