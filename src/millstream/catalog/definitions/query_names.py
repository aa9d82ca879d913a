"""Rows of millstream.query_names: the names of relations and columns in the text of a query.

The text has only names. The catalog also records the oid of each relation and the number of each
column, so that the text can be changed after a rename (see `compiler/server/renames.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.definitions", "query_names.sql")


@dataclass(frozen=True)
class NamedRelation:
    """A relation, with its name and the names of its columns."""

    relid: int
    schema: str
    name: str
    columns: tuple[tuple[int, str], ...]
    """The number and the name of each column."""

    @property
    def qualified(self) -> tuple[str, str]:
        """Its schema and its name."""
        return self.schema, self.name

    @classmethod
    def of(
        cls, relid: int, schema: str, name: str, attnums: Sequence[int], names: Sequence[str]
    ) -> NamedRelation:
        """Return the relation of a row."""
        return cls(relid, schema, name, tuple(zip(attnums, names, strict=True)))


Names = tuple[NamedRelation, ...]


def of_view(conn: Connection, view: int) -> Names:
    """Return the relations that the query of a view names."""
    return tuple(NamedRelation.of(*row) for row in conn.execute(_SQL["of_view"], {"view": view}))


def now(conn: Connection, relids: Iterable[int]) -> dict[int, NamedRelation]:
    """Return the current names of the relations that still exist, by oid."""
    rows = conn.execute(_SQL["now"], (list(relids),))
    return {row[0]: NamedRelation.of(*row) for row in rows}


def taken(conn: Connection, names: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the qualified names that are in use by a relation."""
    wanted = list(names)
    return set(
        conn.execute(
            _SQL["taken"], ([one[0] for one in wanted], [one[1] for one in wanted])
        ).fetchall()
    )


def primary_key(conn: Connection, relid: int) -> list[str]:
    """Return the columns of the primary key of a relation; empty if it has none."""
    return [name for (name,) in conn.execute(_SQL["primary_key"], (relid,))]


def recorded(conn: Connection, stream_table_id: int) -> Names:
    """Return the relations that the recorded text of a stream table's query names; empty if they
    were never recorded.
    """
    return tuple(
        NamedRelation.of(*row) for row in conn.execute(_SQL["recorded"], (stream_table_id,))
    )


def put(conn: Connection, stream_table_id: int, names: Names) -> None:
    """Replace the recorded relations that the text of a stream table's query names."""
    conn.execute(_SQL["remove"], (stream_table_id,))
    for one in names:
        attnums, columns = (
            [attnum for attnum, _ in one.columns],
            [column for _, column in one.columns],
        )
        conn.execute(
            _SQL["add"], (stream_table_id, one.relid, one.schema, one.name, attnums, columns)
        )
