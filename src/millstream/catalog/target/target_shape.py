"""The shape of a stream table's own table: can it store the rows of the query unchanged?

The owner can alter the table. A column that is missing, has another type, or is generated cannot
store the query's values. A rule does something else instead of a write. The rows of a table that
inherits from it would be read as its own. Each of these is refused with the statement that reverts
it. The shape is recorded with the rows; if it differs, for example because a column was added
again, the rows are computed in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from millstream.algebra.table import quoted
from millstream.algebra.types import Column
from millstream.catalog.definitions import definition_digests
from millstream.errors import TargetAltered
from millstream.postgres import relations
from millstream.postgres.composed import Printed, printed_statement
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.target", "target_shape.sql")


@dataclass(frozen=True)
class TypedColumn:
    """A column with its type in the query; type and collation are SQL."""

    name: str
    type: str
    collation: str | None

    @property
    def identifier(self) -> sql.Identifier:
        """For use in composed SQL."""
        return sql.Identifier(self.name)

    @property
    def collate(self) -> sql.Composable:
        """The COLLATE clause, empty if the collation is the type's default."""
        return (
            sql.SQL(" COLLATE {}").format(Printed(self.collation))
            if self.collation
            else sql.SQL("")
        )


def retyped(conn: Connection, view: int, relid: int) -> list[TypedColumn]:
    """Return the columns of a query, given as a view, whose type differs in the table of the stream
    table.
    """
    return [
        TypedColumn(*row) for row in conn.execute(_SQL["retyped"], {"view": view, "table": relid})
    ]


def wanted(conn: Connection, view: int) -> list[TypedColumn]:
    """Return the columns of a query, given as a view, in order."""
    return [TypedColumn(*row) for row in conn.execute(_SQL["wanted"], {"view": view})]


def key_drops(conn: Connection, relid: int) -> list[sql.Composed]:
    """Return the statements that drop the key of a stream table."""
    return [
        printed_statement(text)
        for (text,) in conn.execute(_SQL["marked_indexes"], {"table": relid})
    ]


def check(
    conn: Connection, stream_table_id: int, name: str, relid: int, columns: Sequence[Column]
) -> None:
    """Raise unless the table of that oid, if it exists, can store the rows of a query with these
    columns.
    """
    found = conn.execute(_SQL["facts"], (relid,)).fetchone()
    if found is None:
        return
    computed, rules, children = found
    stored = {column.name: column.type.name for column in relations.columns(conn, relid)}
    _check_columns(stored, columns, name, altered=_is_altered(conn, stream_table_id, relid))
    table = str(relations.names(conn, [relid])[0])
    own = {column.name for column in columns}
    for column, written in computed:
        if column in own:
            raise TargetAltered.column(
                name, f"Column {written} is generated or an identity column."
            )
    for rule in rules:
        raise TargetAltered.has(
            name, f"Rule {rule} rewrites what is written to it.", f"DROP RULE {rule} ON {table}"
        )
    for child in children:
        what = f"Table {child} inherits from it, and its rows would be read as the stream table's."
        raise TargetAltered.has(name, what, f"ALTER TABLE {child} NO INHERIT {table}")


def refuse_other_types(conn: Connection, name: str, relid: int, columns: Sequence[Column]) -> None:
    """Raise if the types of a column in the table and in the query differ."""
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
        # If the type in the query changed, the table is altered to it.
        if there != wanted and altered:
            raise TargetAltered.column(
                name, f"Column {quoted(column.name)} has type {there}, not {wanted}."
            )


def _is_altered(conn: Connection, stream_table_id: int, relid: int) -> bool:
    """Return True if the table changed since its rows were computed; otherwise the query changed."""
    now = definition_digests.digests_of_target(conn, relid)
    return any(
        one.kind == "shape" and one.is_recorded_otherwise
        for one in definition_digests.changed_definitions(conn, {stream_table_id: now})
    )
