"""Tables: the rows that a query reads, one class for each kind.

SourceTable      a plain or partitioned table of the user, or a stream table; its rows change
BlockRows        the rows of an inner block
ConstantRows     VALUES, written in the query
Clock            one row with the current time, which every refresh changes
SelfReference    a recursion that its own term reads
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.algebra.types import Column

# The column that numbers the rows of a block, or of VALUES.
ROW = "__ms_row"
# The one row of the clock.
NOW = "SELECT now()"


@dataclass(frozen=True)
class Table:
    """Rows that a query reads: the base of all kinds."""

    columns: tuple[Column, ...]
    key: tuple[str, ...] = field(default=(), kw_only=True)
    """Columns that identify a row; empty if none are known to."""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError(f"table {self.title} has two columns of one name")
        if not set(self.key) <= set(names):
            raise ValueError(f"key {self.key} of {self.title} names an unknown column")

    @property
    def title(self) -> str:
        """The name that plans print."""
        raise NotImplementedError

    @property
    def relation(self) -> str:
        """The text of the FROM item while the query is planned."""
        raise NotImplementedError

    @property
    def single(self) -> bool:
        """True if there is always exactly one row."""
        return False

    @property
    def unbounded(self) -> frozenset[str]:
        """The columns that are unbounded numerics, which may have more digits after the point than
        Spark's.
        """
        return frozenset()

    def column(self, name: str) -> Column | None:
        """Return the column of this name; None if there is none."""
        return next((column for column in self.columns if column.name == name), None)

    def __str__(self) -> str:
        return self.relation


@dataclass(frozen=True, kw_only=True)
class SourceTable(Table):
    """A table of the user, or a stream table. Its key is the primary key, or a unique index over
    NOT NULL columns.
    """

    oid: int
    schema: str
    name: str
    partitions: tuple[int, ...] = ()
    """Oids of its partitions and children, to any depth; a write to one fires only its own
    triggers.
    """

    @property
    def title(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def relation(self) -> str:
        return quoted(self.schema, self.name)


@dataclass(frozen=True, kw_only=True)
class BlockRows(Table):
    """The rows of an inner block; its key are the keys of the groups."""

    block: int
    """Its position in the chain."""
    relation_name: str
    """The name of the temporary view that stands for it while the query is planned."""
    single: bool = False
    unbounded: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.single and self.key:
            raise ValueError("one row needs no key")

    @property
    def title(self) -> str:
        return f"block {self.block}"

    @property
    def relation(self) -> str:
        return f'"pg_temp".{quoted(self.relation_name)}'


@dataclass(frozen=True, kw_only=True)
class ConstantRows(Table):
    """VALUES, numbered row by row."""

    values: str
    single: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_without_key(self)

    @property
    def title(self) -> str:
        return self.values

    @property
    def relation(self) -> str:
        names = ", ".join(quoted(column.name) for column in self.columns)
        return f"(SELECT row_number() OVER () AS {ROW}, c.* FROM ({self.values}) AS c ({names}))"


@dataclass(frozen=True, kw_only=True)
class Clock(Table):
    """One row with the current time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_without_key(self)

    @property
    def single(self) -> bool:
        return True

    @property
    def title(self) -> str:
        return "the clock"

    @property
    def relation(self) -> str:
        names = ", ".join(quoted(column.name) for column in self.columns)
        return f"(SELECT row_number() OVER () AS {ROW}, c.* FROM ({NOW}) AS c ({names}))"


@dataclass(frozen=True, kw_only=True)
class SelfReference(Table):
    """A recursion that its own term reads, until the block of the recursion has a place in the
    chain.
    """

    name: str
    depth: int
    """The number of recursions around it."""
    position: int = field(default=0, compare=False, repr=False)
    """The position of the term in the user's query; 0 if unknown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_without_key(self)

    @property
    def title(self) -> str:
        return f"itself.{self.name}"

    @property
    def relation(self) -> str:
        return f'"itself".{quoted(self.name)}'


def _check_without_key(table: Table) -> None:
    if table.key:
        raise ValueError(f"{table.title} has no key")


def literal(text: str) -> str:
    """Return a text as a string constant.

    >>> print(literal("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"


def quoted(*parts: str) -> str:
    """Return an identifier in double quotes; a qualified one of several parts.

    >>> print(quoted("public", "my table"))
    "public"."my table"
    """
    return '"' + '"."'.join([part.replace('"', '""') for part in parts]) + '"'
