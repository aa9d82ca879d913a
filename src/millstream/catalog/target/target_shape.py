"""The shape of a stream table's own table: can the rows of its query be stored in it as they are?

Its owner can alter it. A column that is missing, of another type, or computed by itself cannot hold
the query's values; a rule does something else instead of a write; the rows of a table that inherits
from it would be read as its own. Each is refused with the statement that takes it back. A column
that is given back is filled: the shape is recorded with the rows, and where it is another one they
are computed whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.algebra.table import quoted
from millstream.algebra.types import Column
from millstream.catalog.definitions import definition_digests
from millstream.errors import TargetAltered
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.target", "target_shape.sql")


@dataclass(frozen=True)
class TypedColumn:
    """A column with its type in the query; name, type and collation are SQL."""

    name: str
    type: str
    collation: str | None


def retyped(conn: Connection, view: int, relid: int) -> list[TypedColumn]:
    """Return the columns of a query, given as a view, that the table of a stream table has with
    another type.
    """
    return [
        TypedColumn(*row) for row in conn.execute(_SQL["retyped"], {"view": view, "table": relid})
    ]


def wanted(conn: Connection, view: int) -> list[TypedColumn]:
    """Return the columns of a query, given as a view, in order."""
    return [TypedColumn(*row) for row in conn.execute(_SQL["wanted"], {"view": view})]


def key_drops(conn: Connection, relid: int) -> list[str]:
    """Return the statements that drop the key of a stream table."""
    return [statement for (statement,) in conn.execute(_SQL["marked_indexes"], {"table": relid})]


def check(
    conn: Connection, stream_table_id: int, name: str, relid: int, columns: Sequence[Column]
) -> None:
    """Raise unless the rows of a query with these columns can be stored in the table of that oid,
    if there is one.
    """
    found = conn.execute(_SQL["facts"], (relid,)).fetchone()
    if found is None:
        return
    computed, rules, children = found
    stored = {column.name: column.type.name for column in relations.columns(conn, relid)}
    _check_columns(stored, columns, name, altered=_is_altered(conn, stream_table_id, relid))
    table = str(relations.names(conn, [relid])[0])
    own = [quoted(column.name) for column in columns]
    for column in computed:
        if quoted(column.strip('"').replace('""', '"')) in own:
            raise TargetAltered.column(name, f"Column {column} is generated or an identity column.")
    for rule in rules:
        raise TargetAltered.has(
            name, f"Rule {rule} rewrites what is written to it.", f"DROP RULE {rule} ON {table}"
        )
    for child in children:
        what = f"Table {child} inherits from it, and its rows would be read as the stream table's."
        raise TargetAltered.has(name, what, f"ALTER TABLE {child} NO INHERIT {table}")


def refuse_other_types(conn: Connection, name: str, relid: int, columns: Sequence[Column]) -> None:
    """Raise if a column has another type than in the query, whichever of the two was altered."""
    stored = {column.name: column.type.name for column in relations.columns(conn, relid)}
    _check_columns(stored, columns, name, altered=True)


def _check_columns(
    stored: Mapping[str, str], columns: Sequence[Column], name: str, *, altered: bool
) -> None:
    for column in columns:
        there, wanted = stored.get(column.name), column.type.name
        if there is None:
            raise TargetAltered.column(
                name, f"Column {quoted(column.name)} of type {wanted} is missing."
            )
        # If it is the query that has another type, the table follows.
        if there != wanted and altered:
            raise TargetAltered.column(
                name, f"Column {quoted(column.name)} has type {there}, not {wanted}."
            )


def _is_altered(conn: Connection, stream_table_id: int, relid: int) -> bool:
    """Return True if the table changed since its rows were computed; otherwise it is the query that
    changed.
    """
    now = definition_digests.digests_of_target(conn, relid)
    return any(
        one.kind == "shape" and one.is_recorded_otherwise
        for one in definition_digests.changed_definitions(conn, {stream_table_id: now})
    )
