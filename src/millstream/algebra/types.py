"""PostgreSQL's types, as the server names them.

A `PgType` comes from the server's description of a column or an expression; it is never guessed
from SQL text. `wire.py` has how a value of the type travels to Spark and back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["base", "enum", "array", "composite", "range", "domain", "pseudo"]


@dataclass(frozen=True)
class PgType:
    """One type with its modifier and collation.

    `name` is what `format_type` prints, ready for use in a cast: `numeric(12,2)`, `shop."Colour"`.
    `base` is the bare name underneath domains, as in `pg_type.typname`: `numeric`, `int4`.
    """

    oid: int
    name: str
    base: str
    kind: Kind = "base"
    precision: int | None = None
    scale: int | None = None
    element: str | None = None
    """For an array: the bare name of the element type."""
    collation: Literal["none", "C", "deterministic", "nondeterministic"] = "none"
    comparable: bool = True
    """PostgreSQL has an equality operator for it; json, xml and point have none."""
    underlying: str = ""
    """For a domain: the name of the type underneath, with its modifier."""
    output: str = ""
    """The output function, schema-qualified, where the type underneath is user-defined; see
    `text_io`.
    """
    parts: tuple[str, ...] = ()
    """For an array or a composite: the bare names of the types that it consists of, at any depth;
    `enum` for enums, `nondeterministic` beside a text of such a collation.
    """

    def __post_init__(self) -> None:
        if not self.name or not self.base:
            raise ValueError("a type has a name and a base")

    @property
    def is_domain(self) -> bool:
        return bool(self.underlying)

    @property
    def keeps_blanks(self) -> bool:
        """True for bpchar without a declared length: equality ignores its trailing blanks, but they
        are stored.
        """
        return self.kind == "base" and self.base == "bpchar" and self.unwrapped().name == "bpchar"

    def unwrapped(self) -> PgType:
        """Return the type underneath a domain; any other type as it is."""
        return replace(self, name=self.underlying, underlying="") if self.underlying else self

    @property
    def is_user_defined(self) -> bool:
        """True if the type, or the type underneath, is one that a user may alter or define casts
        for.
        """
        return bool(self.output or self.underlying)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Column:
    """A named, typed column of a table or of a query's output."""

    name: str
    type: PgType
    not_null: bool = False
    attnum: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.type}{' NOT NULL' if self.not_null else ''}"
