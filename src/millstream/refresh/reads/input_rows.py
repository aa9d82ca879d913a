"""The rows of one input, as they are gathered."""

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
    """The rows of one input: images or first rows to begin with, and what messages brought."""

    first: pa.Table | None = None
    found: list[pa.Table] = field(default_factory=list)
    whole: pa.Table | Scanned | None = None
    crossing: pa.Table | Scanned | None = None
    """Stored rows to begin with: of these a moving filter says one thing before and another after."""
    asked: list[LookedUpKeys] = field(default_factory=list)

    @classmethod
    def beginning(cls, first: pa.Table | None, crossing: pa.Table | Scanned | None) -> InputRows:
        """What an input has before any message is sent."""
        if isinstance(crossing, pa.Table) and ROW in crossing.column_names:
            return cls(first, [crossing], None, crossing)
        return cls(first, [], crossing, crossing)

    def begins(self) -> list[pa.Table | Scanned]:
        """The rows that messages start from."""
        own = [one for one in (self.first, self.crossing) if one is not None]
        return [one for one in own if isinstance(one, Scanned) or one.num_rows > 0]

    def rows(self) -> bool:
        """Is there any?"""
        stored = [self.first, self.whole, *self.found]
        return any(isinstance(one, Scanned) or one.num_rows > 0 for one in stored if one is not None)

    def known(self, column: str, keys: pa.Table) -> tuple[list[pa.Table], pa.Table]:
        """The rows of those keys that have been asked for by a column, and the other keys."""
        known = list[pa.Table]()
        for former in (one for one in self.asked if one.column == column):
            known.append(former.rows.filter(among(former.rows[column], keys.column(0), nulls=False)))
            keys = keys.filter(pc.invert(among(keys.column(0), former.keys, nulls=False)))
        return known, keys

    def tables(self) -> list[pa.Table] | None:
        """All of them; None where Spark's tasks read them."""
        stored = [one for one in (self.first, self.whole, *self.found) if one is not None]
        tables = [one for one in stored if isinstance(one, pa.Table)]
        return tables if len(tables) == len(stored) else None

    def reduced(self, to: Callable[[pa.Table], pa.Table]) -> InputRows:
        """The same with fewer rows."""
        first, whole = (to(one) if isinstance(one, pa.Table) else one for one in (self.first, self.whole))
        return InputRows(first, [to(one) for one in self.found], whole, self.crossing)

    def stored(self) -> InputRows:
        """The same where the first rows are no images but the table's own: what messages find again counts once."""
        if self.first is None or self.whole is not None:
            return InputRows(whole=self.whole, found=self.found)
        located = ROW in self.first.column_names
        return InputRows(found=[self.first, *self.found]) if located else InputRows(whole=self.first)


def among(values: pa.ChunkedArray, others: pa.ChunkedArray, *, nulls: bool) -> pa.ChunkedArray:
    """Which of the values are among the others; `nulls`, a NULL where there is one."""
    if values.type != others.type:
        values, others = values.cast(pa.int64()), others.cast(pa.int64())
    return pc.is_in(values, value_set=others, skip_nulls=not nulls)
