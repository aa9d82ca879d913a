"""Tables: sources, the rows of inner blocks, VALUES, the clock, and a recursion read by its own term."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.algebra.types import Column

# The column that numbers the rows of a block, or of VALUES.
ROW = "__ms_row"
# The one row of the clock.
NOW = "SELECT now()"


@dataclass(frozen=True)
class Table:
    """Rows that a query reads: a plain or partitioned table of the user, or one of the kinds named below."""

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """The columns of the primary key, or of a unique index over columns that are all NOT NULL; the keys of a block."""
    partitions: tuple[int, ...] = ()
    """Oids of its partitions and children, to any depth; a write to one fires only its own triggers."""
    block: int | None = None
    """For the rows of an inner block: its position in the chain. Schema and name are those it has while planning."""
    single: bool = False
    """The table always has exactly one row."""
    rows: str = ""
    """For rows written in the query: its VALUES; for the clock: its query."""
    unbounded: frozenset[str] = frozenset()
    """For the rows of a block: the unbounded numerics, which may have more digits after the point than Spark's."""
    recursion: int | None = None
    """For a recursion that its own term reads: the number of recursions around it."""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError(f"table {self.name} has two columns of one name")
        if not set(self.key) <= set(names):
            raise ValueError(f"key {self.key} of {self.name} names an unknown column")

    @property
    def qualified(self) -> str:
        """Schema and name, quoted for use in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def stored(self) -> bool:
        """True for a table of the user, whose rows may change."""
        return self.block is None and not self.rows and self.recursion is None

    @property
    def is_clock(self) -> bool:
        """True for the clock: its one row is the current time, which every refresh changes."""
        return self.rows == NOW

    @property
    def relation(self) -> str:
        """The text of the FROM item; VALUES are numbered row by row."""
        if not self.rows:
            return self.qualified
        names = ", ".join(quoted(column.name) for column in self.columns)
        return f"(SELECT row_number() OVER () AS {ROW}, c.* FROM ({self.rows}) AS c ({names}))"

    @property
    def title(self) -> str:
        """The name that plans print."""
        if self.is_clock:
            return "the clock"
        return self.rows or (f"{self.schema}.{self.name}" if self.block is None else f"block {self.block}")

    def column(self, name: str) -> Column | None:
        """Return the column of this name; None if there is none."""
        return next((column for column in self.columns if column.name == name), None)

    def __str__(self) -> str:
        return self.qualified


def quoted(name: str) -> str:
    """Return an identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'
