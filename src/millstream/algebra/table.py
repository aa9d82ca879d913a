"""A source table, as the catalog describes it at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.algebra.types import Column

# Where a row stands among those of a block, or of VALUES.
ROW = "__ms_row"
# The one row of the clock.
NOW = "SELECT now()"


@dataclass(frozen=True)
class Table:
    """A relation that stream tables read: a plain or a partitioned table."""

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """The columns of the primary key, or of a unique index over columns that are all NOT NULL; the keys of a block."""
    members: tuple[int, ...] = ()
    """Oids of its partitions and children, to any depth; a write to one fires only its own triggers."""
    block: int | None = None
    """Of the rows of an inner block: its position in the chain. Its schema and name are those of planning."""
    single: bool = False
    """It always has exactly one row."""
    rows: str = ""
    """Of rows that stand in the query itself: the VALUES that they are."""
    unbounded: frozenset[str] = frozenset()
    """Of the rows of a block: the numerics that may have more digits after the point than Spark's."""
    recursion: int | None = None
    """Of the rows of a recursion, where its own term reads them: how many recursions stand around it."""

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
        """Is it a table of the user's, whose rows may change?"""
        return self.block is None and not self.rows and self.recursion is None

    @property
    def is_clock(self) -> bool:
        """Is its row the time, which every refresh changes?"""
        return self.rows == NOW

    @property
    def relation(self) -> str:
        """What a FROM item reads; of rows of the query, each with its number."""
        if not self.rows:
            return self.qualified
        names = ", ".join(quoted(column.name) for column in self.columns)
        return f"(SELECT row_number() OVER () AS {ROW}, c.* FROM ({self.rows}) AS c ({names}))"

    @property
    def title(self) -> str:
        """What it is, for people."""
        if self.is_clock:
            return "the clock"
        return self.rows or (f"{self.schema}.{self.name}" if self.block is None else f"block {self.block}")

    def column(self, name: str) -> Column | None:
        """The column of that name, if there is one."""
        return next((column for column in self.columns if column.name == name), None)

    def __str__(self) -> str:
        return self.qualified


def quoted(name: str) -> str:
    """An identifier, always in double quotes."""
    return '"' + name.replace('"', '""') + '"'
