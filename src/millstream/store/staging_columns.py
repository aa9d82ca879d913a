"""Convert values and rows to the columns of staging tables, which have built-in types only (see
`algebra.text_io`), and back.

`stage` converts typed rows for a staging table, `unstage` converts them back. If no column has a
user-defined type, both return their argument.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from millstream.algebra import text_io
from millstream.algebra.block import Block
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import Wire
from millstream.postgres.composed import Printed, aliased, listed


def stages(columns: Sequence[Column]) -> bool:
    """Return True if a column has another type in a staging table."""
    return any(column.type.is_user_defined for column in columns)


def columns_of(block: Block) -> list[Column]:
    """Return the output columns of a block."""
    return [output.column for output in block.outputs]


def stage(
    columns: Sequence[Column], rows: sql.Composable, *others: sql.Composable
) -> sql.Composable:
    """Convert a query with these typed columns and others to one for a staging table."""
    if not stages(columns):
        return rows
    own = [aliased(staged(sql.Identifier("s", c.name), c.type), c.name) for c in columns]
    return sql.SQL("SELECT {columns} FROM ({rows}) AS s").format(
        columns=listed([*others, *own]), rows=rows
    )


def unstage(
    columns: Sequence[Column], relation: sql.Composable, *others: sql.Composable
) -> sql.Composable:
    """Return a staging table with these columns and others as a FROM item of typed rows, without an
    alias.
    """
    if not stages(columns):
        return relation
    own = [aliased(unstaged(sql.Identifier("s", c.name), c.type), c.name) for c in columns]
    return sql.SQL("(SELECT {columns} FROM {relation} AS s)").format(
        columns=listed([*others, *own]), relation=relation
    )


# -- single values: the conversions are those of `algebra.text_io` and `algebra.wire` --------


def staged(value: sql.Composable, type_: PgType) -> sql.Composable:
    """Return a value as a staging table stores it."""
    if not type_.is_user_defined:
        return value
    return Printed(text_io.staged_sql(value.as_string(), type_))


def unstaged(value: sql.Composable, type_: PgType) -> sql.Composable:
    """Return the value that a staging table stores, in its own type."""
    if not type_.is_user_defined:
        return value
    return Printed(text_io.unstaged_sql(value.as_string(), type_))


def text_of(value: sql.Composable, type_: PgType) -> Printed:
    """Return the text of a value, as its type's output function prints it."""
    return Printed(text_io.output_sql(value.as_string(), type_))


def decoded(sent: sql.Composable, wire: Wire, type_: PgType) -> Printed:
    """Return the value that Spark sent, in its own type."""
    return Printed(wire.decode_sql(sent.as_string(), type_))


def encoded(value: sql.Composable, wire: Wire) -> Printed:
    """Return what is sent to Spark for a value."""
    return Printed(wire.encode_sql(value.as_string()))


def sent_key(value: sql.Composable, wire: Wire) -> Printed:
    """Return the key that is sent to Spark for a value."""
    return Printed(wire.key_sql(value.as_string()))


def received(sent: sql.Composable, wire: Wire, type_: PgType) -> sql.Composable:
    """Convert a value from Spark for a staging table; a user-defined type stays the text that was
    sent.
    """
    return sent if type_.output else staged(decoded(sent, wire, type_), type_)


def staged_key(value: sql.Composable, wire: Wire, type_: PgType) -> sql.Composable:
    """Convert a key in a staging table to its wire form for Spark."""
    return value if type_.output else sent_key(unstaged(value, type_), wire)
