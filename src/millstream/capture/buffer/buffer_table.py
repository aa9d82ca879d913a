"""Create the buffer of a source, and add the columns that its capture needs.

Its columns have the base types of the source's domains, without modifiers, constraints or defaults:
the buffer can hold every value that the source can hold, so that capture never fails. A column is
added when a reader needs it, and stays. A column whose type has changed is dropped and added again,
empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from millstream.capture.buffer.slices import GAPS, SCHEMA, buffer_name, column_name
from millstream.catalog.sources import CapturedColumn
from millstream.postgres.composed import Printed, listed
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.capture.buffer", "slices.sql")


def make(conn: Connection, relid: int, columns: Sequence[CapturedColumn]) -> None:
    """Create the buffer if it does not exist, and add missing columns."""
    names = {
        "buffer": buffer_name(relid),
        "index": sql.Identifier(f"changes_{relid}_xid_idx"),
        "marks": sql.Identifier(f"changes_{relid}_marks_idx"),
    }
    conn.execute(sql.SQL(_SQL["create"]).format(**names))
    steps = _steps(conn, relid, columns)
    if steps:
        conn.execute(sql.SQL("ALTER TABLE {} {}").format(buffer_name(relid), listed(steps)))


def mark(conn: Connection, relid: int, cause: str) -> None:
    """Insert an X row: the buffer does not hold every change, so each reader must reinitialise.

    `cause` is a key of GAPS.
    """
    insert = sql.SQL("INSERT INTO {} (xid, action, origin) VALUES (pg_current_xact_id(), 'X', {})")
    conn.execute(insert.format(buffer_name(relid), sql.Literal(GAPS[cause][0])))


def drop(conn: Connection, relid: int) -> None:
    """Drop the buffer and its rows."""
    conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(buffer_name(relid)))


def _steps(conn: Connection, relid: int, columns: Sequence[CapturedColumn]) -> list[sql.Composed]:
    """Return the clauses of ALTER TABLE that add missing columns and replace those of another type."""
    wanted = (
        [c.attnum for c in columns],
        [c.type_name for c in columns],
        [c.collation for c in columns],
    )
    steps = []
    lacking = conn.execute(_SQL["lacking"], (*wanted, f"{SCHEMA}.changes_{relid}")).fetchall()
    for attnum, type_name, schema, collation, differs in lacking:
        if differs:
            steps.append(sql.SQL("DROP COLUMN {}").format(column_name(attnum)))
        collate = (
            sql.SQL(" COLLATE {}").format(sql.Identifier(schema, collation))
            if collation
            else sql.SQL("")
        )
        steps.append(
            sql.SQL("ADD COLUMN {} {}{}").format(column_name(attnum), Printed(type_name), collate)
        )
    return steps
