"""What queries are made of: typed terms, items of FROM, whole FROM clauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.testing.randomness import COMPARED, KINDS, Family, RandomTable

ORDERING = frozenset({"<", "<=", ">", ">="})


@dataclass(frozen=True)
class Query:
    """A query, what must be created before it, and what it is made of."""

    sql: str
    setup: tuple[str, ...]
    parts: frozenset[str]


@dataclass(frozen=True)
class RandomTerm:
    """A typed expression over the FROM clause."""

    sql: str
    kind: str
    """A name of `KINDS`; a computed value has the kind that its type comes closest to."""
    alias: str = ""
    """The one FROM item it is over."""

    @property
    def family(self) -> Family:
        return KINDS[self.kind].family

    @property
    def name(self) -> str:
        """The column it is, if it is one."""
        return self.sql.partition(".")[2]


Columns = Sequence[tuple[str, str]]
"""Names and kinds."""
Body = tuple[str, Columns]
"""A query, and what it shows."""


@dataclass(frozen=True)
class Item:
    """An item of a FROM clause: its text, its alias, its columns; `j`, `h` and `g` are always
    there.
    """

    sql: str
    alias: str
    columns: tuple[RandomTerm, ...]
    table: RandomTable | None = None
    """The table, where it is one as it stands."""

    def column(self, name: str) -> RandomTerm:
        return next(term for term in self.columns if term.name == name)


@dataclass(frozen=True)
class FromSource:
    """A FROM clause with the conditions that stand in WHERE for it."""

    sql: str
    items: tuple[Item, ...]
    conditions: tuple[str, ...] = ()
    padded: bool = False
    """Does a RIGHT or FULL join leave all columns of the first item NULL in some rows?"""

    @property
    def terms(self) -> list[RandomTerm]:
        return [term for item in self.items for term in item.columns]

    @property
    def case(self) -> str:
        """The case, where there are cases."""
        found = [term.sql for term in self.terms if term.name == "cid"]
        return (
            f"coalesce({', '.join(found)})"
            if self.padded and len(found) > 1
            else found[0]
            if found
            else ""
        )

    def text(self, *where: str) -> str:
        """FROM and WHERE."""
        conditions = [one for one in (*self.conditions, *where) if one]
        return f"FROM {self.sql}" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")


def free(terms: Sequence[RandomTerm]) -> list[RandomTerm]:
    """Return all terms but the case."""
    return [term for term in terms if term.name != "cid"]


def comparable(one: RandomTerm, other: RandomTerm, operator: str) -> bool:
    """Can PostgreSQL compare them, and Spark do it the same way?"""
    if one.kind not in COMPARED or other.kind not in COMPARED:
        return False
    if operator in ORDERING and one.family in ("text", "other"):
        return one.kind == other.kind and one.kind in ("ctext", "uuid")
    if one.family in ("int", "numeric"):
        return other.family in ("int", "numeric")
    # Two collations in one comparison are a conflict; a date meets a timestamp only through a cast.
    return one.kind == other.kind or {one.kind, other.kind} == {"text", "varchar"}


def kind_of_sum(term: RandomTerm) -> str:
    """Return the kind of sum(term), as PostgreSQL has it."""
    return "int8" if term.kind in ("int2", "int4") else "numeric"


def told_apart(term: RandomTerm) -> str:
    """Return the term in a form that is the same for equal values: of 1 and 1.0 either may be the
    least.
    """
    return f"trim_scale({term.sql})" if term.kind == "numeric" else term.sql


def literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
