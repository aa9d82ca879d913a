"""Read from PostgreSQL's own catalog: columns, types, key and partitions of a relation.

Types are looked up, never guessed. A column of a domain has the domain's name, for casts, and
otherwise the properties of the base type, with which PostgreSQL computes. Names are always
qualified, so that they mean the same under any search_path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from millstream.algebra.table import SourceTable, quoted
from millstream.algebra.types import Column, PgType
from millstream.errors import BadSource, NoRights
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.postgres", "relations.sql")


@dataclass(frozen=True)
class Name:
    """A relation's oid with the name it has now."""

    oid: int
    schema: str
    name: str

    @property
    def identifier(self) -> sql.Identifier:
        """For use in composed SQL."""
        return sql.Identifier(self.schema, self.name)

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.schema}.{self.name}"

    def __str__(self) -> str:
        return quoted(self.schema, self.name)


@dataclass(frozen=True)
class RelationFacts:
    """What decides whether a relation can be a source; see the block `facts`."""

    name: Name
    kind: str
    persistence: str
    is_system: bool
    is_ours: bool
    hides_rows: bool
    is_owned: bool
    is_readable: bool
    role: str
    owner: str


# -- tables ----------------------------------------------------------------------------------


def table(conn: Connection, oid: int, key: Sequence[str] = ()) -> SourceTable:
    """Return the table of this oid with its present columns, its key (the given one, if it is one)
    and partitions.
    """
    relation = conn.execute(_SQL["relation"], (oid,)).fetchone()
    if relation is None:
        raise BadSource.of(str(oid), "It has just been dropped.", "Try again.")
    _, schema, name, _ = relation
    found = conn.execute(_SQL["key"], {"oid": oid, "wanted": list(key)}).fetchone()
    return SourceTable(
        columns(conn, oid), oid=oid, schema=schema, name=name, key=tuple(found[0]) if found else (),
        partitions=partitions(conn, [oid])[oid],
    )  # fmt: skip


def names(conn: Connection, oids: Sequence[int]) -> list[Name]:
    """Return the present names of these relations, without dropped ones."""
    query = (
        "SELECT c.oid::int8, n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE c.oid = ANY(%s::oid[]) ORDER BY c.oid"
    )
    return [Name(*row) for row in conn.execute(query, (sorted(set(oids)),))]


def alterable(conn: Connection, oids: Sequence[int]) -> list[Name]:
    """Return the names of those of these relations that our role may lock and alter: it has their
    owner's rights.
    """
    return [Name(*row) for row in conn.execute(_SQL["alterable"], (sorted(set(oids)),))]


def reachable(conn: Connection, oids: Sequence[int]) -> list[Name]:
    """Return the names of those of these relations that our role can name: their schemas are open
    to it.
    """
    return [Name(*row) for row in conn.execute(_SQL["reachable"], (sorted(set(oids)),))]


def partitions(conn: Connection, oids: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the partitions and children of each table, to any depth, ordered by oid."""
    found = {root: tuple(below) for root, below in conn.execute(_SQL["partitions"], (list(oids),))}
    return {oid: found.get(oid, ()) for oid in oids}


def columns(conn: Connection, oid: int) -> tuple[Column, ...]:
    """Return the columns of a relation, in order."""
    rows = conn.execute(_SQL["columns"], (oid,)).fetchall()
    types = pg_types(
        conn, [(type_oid, typmod, collation) for _, type_oid, typmod, collation, _, _ in rows]
    )
    return tuple(
        Column(row[0], kind, row[4], row[5]) for row, kind in zip(rows, types, strict=True)
    )


# -- types -----------------------------------------------------------------------------------


def pg_type(conn: Connection, oid: int, typmod: int = -1, collation_oid: int = 0) -> PgType:
    """Return a type; by default with the type's own collation."""
    return pg_types(conn, [(oid, typmod, collation_oid)])[0]


def pg_types(conn: Connection, asked: Sequence[tuple[int, int, int]]) -> list[PgType]:
    """Return the types of many (oid, typmod, collation), in their order, by one query."""
    each = list(dict.fromkeys(asked))
    oids, typmods, collations = ([one[place] for one in each] for place in range(3))
    rows = conn.execute(_SQL["types"], (oids, typmods, collations)).fetchall()
    if len(rows) != len(each):
        raise ValueError(f"unknown type among {oids}")
    types = [_type_of(row) for row in rows]
    found = dict(zip(each, types, strict=True))
    return [found[one] for one in asked]


# A row of the query has values of several types.
def _type_of(row: Sequence[Any]) -> PgType:
    oid, name, base, kind, typmod, element, collation, comparable, underlying, output, parts = row
    precision, scale = _precision(base, typmod)
    return PgType(
        oid, name, base, kind, precision, scale, element, collation, comparable, underlying, output, tuple(parts)
    )  # fmt: skip


def from_outside(conn: Connection, oids: Sequence[int]) -> bool:
    """Return True if the equality of one of these types belongs to an extension or a user: our
    search_path lacks it.
    """
    found: bool = conn.execute(_SQL["from_outside"], {"oids": list(oids)}).fetchall()[0][0]
    return found


def _precision(base: str, typmod: int) -> tuple[int | None, int | None]:
    """Return precision and scale of numeric and its arrays; the scale may be negative since
    PostgreSQL 15.
    """
    if base not in ("numeric", "_numeric") or typmod < 4:
        return None, None
    return (typmod - 4) >> 16, (((typmod - 4) & 0x7FF) ^ 1024) - 1024


# -- sources ---------------------------------------------------------------------------------


def check_source(conn: Connection, oid: int) -> None:
    """Refuse a relation that changes cannot be captured from; its members count as itself."""
    found = [
        RelationFacts(Name(*row[:3]), *row[3:])
        for row in conn.execute(_SQL["facts"], ([oid, *partitions(conn, [oid])[oid]],))
    ]
    if not found:
        raise BadSource.of(str(oid), "It has just been dropped.", "Try again.")
    root = found[0]
    for facts in found:
        _check_kind(root, facts)
    for facts in found:
        _check_rights(facts)


# In the order of precedence: the first reason that applies is reported.
_KINDS = {
    "v": ("It is a view that was not inlined.", "Read the tables under it instead."),
    "m": (
        "It is a materialized view; changes of its rows cannot be captured.",
        "Read the tables under it instead.",
    ),
    "f": (
        "It is a foreign table; changes made elsewhere are not seen here.",
        "Copy it into a local table.",
    ),
    "S": ("It is a sequence.", "Name a table."),
}


def _check_kind(root: RelationFacts, facts: RelationFacts) -> None:
    reason = _reason_against(facts)
    if reason is None:
        return
    why, way_round = reason
    if facts is not root:
        why = f"Its partition or child {facts.name} cannot be captured. {why}"
    raise BadSource.of(root.name.title, why, way_round)


def _reason_against(facts: RelationFacts) -> tuple[str, str] | None:
    """Return why changes of the relation cannot be captured, and a workaround; None if they can."""
    if facts.is_system:
        return (
            "It is a system catalog; it takes no triggers.",
            "Copy what you need into a table of your own.",
        )
    if facts.is_ours:
        return "It belongs to Millstream itself.", "Name a table of your own, or a stream table."
    if facts.kind in _KINDS:
        return _KINDS[facts.kind]
    if facts.kind not in ("r", "p"):
        return "It is not a table.", "Name a table."
    if facts.persistence == "t":
        return "It is a temporary table; no other session can read it.", "Use a permanent table."
    if facts.persistence == "u":
        return "It is unlogged; after a crash it is empty.", "ALTER TABLE ... SET LOGGED."
    return None


def _check_rights(facts: RelationFacts) -> None:
    name = str(facts.name)
    if not facts.is_owned:
        raise NoRights.to(
            f"capture changes from {name}",
            role=facts.role,
            grant=f"GRANT {quoted(facts.owner)} TO {quoted(facts.role)};",
            reason="Only the owner of a table may create triggers on it that always fire.",
        )
    if not facts.is_readable:
        raise NoRights.to(
            f"read {name}",
            role=facts.role,
            grant=f"GRANT SELECT ON {name} TO {quoted(facts.role)};",
        )
    if facts.hides_rows:
        why = "Row-level security hides some of its rows from the role that Millstream connects as."
        way_round = f"ALTER TABLE {name} NO FORCE ROW LEVEL SECURITY, or use a role with BYPASSRLS."
        raise BadSource.of(facts.name.title, why, way_round)
