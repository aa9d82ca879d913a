"""Give the table of a stream table the column types that its query has now.

    ALTER COLUMN ... TYPE     the table keeps its oid, indexes, rights, comments and triggers
    start over                the next refresh computes the rows in full and applies the difference

Stored values are converted, by a cast or through their text, so that readers see the former rows
until that refresh commits. If neither works, or if two keys become equal, the rows are deleted
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import psycopg
from psycopg import errors, sql

from millstream.capture.trigger import triggers
from millstream.catalog import stream_tables
from millstream.catalog.definitions import definition_digests
from millstream.catalog.stream_tables import StreamTable
from millstream.catalog.target import target_shape, targets, write_guard
from millstream.catalog.target.target_shape import TypedColumn
from millstream.compiler.server import queries
from millstream.compiler.server.plan_query import QueryPlan
from millstream.errors import SourceChanged
from millstream.observe import log
from millstream.postgres.composed import Printed, listed
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.table_locks import Patience, under_lock

# A short wait, since readers of the stream table queue behind the lock request.
HASTY = Patience(seconds=2.0)

# Conversions of stored values, in the order in which they are tried.
_CONVERSIONS = (sql.SQL("{column}::{type}"), sql.SQL("{column}::pg_catalog.text::{type}"))
_NOTHING = sql.SQL("NULL::{type}")
# Errors that do not depend on the values.
_DEPENDENTS = (
    errors.FeatureNotSupported,
    errors.DependentObjectsStillExist,
    errors.InvalidObjectDefinition,
)


def follow_types(conn: Connection, table: StreamTable, planned: QueryPlan) -> bool:
    """Alter the columns whose types differ in the query; return True if there are any."""
    if table.relid is None:
        return False
    with queries.rolled_back(conn):
        view = queries.temporary_view(conn, planned.canonical.text)
        retyped = target_shape.retyped(conn, view, table.relid)
    name = targets.ours(conn, table.id, table.name) if retyped else None
    if name is None:
        return False
    log.warning("types followed", table=table.name, columns=[_written(one) for one in retyped])
    under_lock(
        conn,
        [name],
        "ACCESS EXCLUSIVE",
        partial(_alter, conn, _Alteration(table, name, tuple(retyped))),
        HASTY,
    )
    return True


def _written(column: TypedColumn) -> str:
    return f"{column.identifier.as_string()} {column.type}"


@dataclass(frozen=True)
class _Alteration:
    """The columns of a stream table that get other types."""

    table: StreamTable
    name: Name
    columns: tuple[TypedColumn, ...]

    def statement(self, conversion: sql.SQL) -> sql.Composed:
        """Return the statement that alters all of them at once."""
        clause = sql.SQL("ALTER COLUMN {column} TYPE {type}{collate} USING {value}")
        clauses = [
            clause.format(
                column=one.identifier,
                type=Printed(one.type),
                collate=one.collate,
                value=conversion.format(column=one.identifier, type=Printed(one.type)),
            )
            for one in self.columns
        ]
        return sql.SQL("ALTER TABLE {} {}").format(self.name.identifier, listed(clauses))


def _alter(conn: Connection, alteration: _Alteration) -> None:
    convert(conn, alteration.table, alteration.name, alteration.columns)
    triggers.follow_columns(conn, alteration.name)
    id, relid = alteration.table.id, alteration.name.oid
    definition_digests.record_target(conn, id, definition_digests.digests_of_target(conn, relid))
    stream_tables.start_over(conn, id)


def convert(
    conn: Connection, table: StreamTable, name: Name, columns: Sequence[TypedColumn]
) -> None:
    """Give these columns of a stream table other types, in the caller's transaction."""
    alteration = _Alteration(table, name, tuple(columns))
    with naming_obstacles(table, name):
        if not any(
            _is_converted(conn, alteration.statement(conversion)) for conversion in _CONVERSIONS
        ):
            empty(conn, name)
            conn.execute(alteration.statement(_NOTHING))


def empty(conn: Connection, name: Name) -> None:
    """Delete all rows of a stream table."""
    with write_guard.write_permit(conn, str(name)):
        conn.execute(sql.SQL("DELETE FROM {}").format(name.identifier))


@contextmanager
def naming_obstacles(table: StreamTable, name: Name) -> Iterator[None]:
    """Raise SourceChanged if objects that depend on a column prevent altering it; name them."""
    try:
        yield
    except _DEPENDENTS as error:
        raise SourceChanged.storage(table.name, str(name), _said(error)) from error


def _is_converted(conn: Connection, statement: sql.Composed) -> bool:
    try:
        with conn.transaction():
            conn.execute(statement)
    except (
        errors.DataError,
        errors.IntegrityError,
        errors.CannotCoerce,
        errors.DatatypeMismatch,
    ) as error:
        log.info("not converted", reason=str(error))
        return False
    return True


def _said(error: psycopg.Error) -> str:
    parts = (error.diag.message_primary or str(error), error.diag.message_detail or "")
    return " ".join(f"{part[:1].upper()}{part[1:].rstrip('.')}." for part in parts if part)
