"""Find what a query reads, as PostgreSQL records it: views, functions and tables, and which leads
to which.

The server resolves the names in a query when a view of it is created, and records what the view
depends on. It knows what a function reads only if the body is written as BEGIN ATOMIC; a body in a
string is not analysed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.postgres", "lineage.sql")

Object: TypeAlias = tuple[int, int]
"""The oid of a system catalog (`pg_class`, `pg_proc`) and the oid of an object in it."""


@dataclass(frozen=True)
class Lineage:
    """The objects that a view reads: `links[x]` are those that `x` reads directly."""

    root: Object
    links: dict[Object, tuple[Object, ...]]

    @property
    def relations(self) -> int:
        """The oid of `pg_class`."""
        return self.root[0]

    def relids(self) -> set[int]:
        """Return the relations among them."""
        return {
            oid
            for read in self.links.values()
            for classid, oid in read
            if classid == self.relations
        }

    def following(self, reader: Object) -> tuple[Object, ...]:
        """Return what an object reads directly."""
        return self.links.get(reader, ())


def of(conn: Connection, view: int) -> Lineage:
    """Return what the view of that oid reads."""
    found = dict[Object, tuple[Object, ...]]()
    for reader_class, reader, read_class, read in conn.execute(_SQL["links"], {"view": view}):
        key = reader_class, reader
        found[key] = (*found.get(key, ()), (read_class, read))
    classid: int = conn.execute("SELECT 'pg_class'::regclass::oid").fetchall()[0][0]
    return Lineage((classid, view), found)


def names(conn: Connection, objects: Iterable[Object]) -> dict[Object, str]:
    """Return how these are named to people: `view public.v`, `function public.f(integer)`."""
    asked = list(objects)
    rows = conn.execute(
        _SQL["names"], ([classid for classid, _ in asked], [oid for _, oid in asked])
    )
    return {(classid, oid): name for classid, oid, name in rows}
