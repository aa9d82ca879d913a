"""Manage staging tables: temporary tables of a session that hold the rows to apply.

A staging table is created for a shape (the staged columns with their types and collations), not for
a stream table. Stream tables of one shape use it one after the other, and clear it before use:

    500 sums by region      three staging tables in all, not 1,500

PostgreSQL holds locks until the transaction ends, and a new temporary table with its row type, its
TOAST table and TOAST index takes four. ON COMMIT DELETE ROWS would not help: each commit truncates
all such tables of the session, used or not, which takes three locks for each and some milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import sql

from millstream.algebra.block import Block, GroupedBlock, RecursionBlock
from millstream.postgres.connection import Connection
from millstream.store.names import BlockNames

# Up to this size DELETE is used: TRUNCATE creates new files, which costs as much as deleting some
# thousand rows.
SMALL_BYTES = 1 << 20
# A larger staging table is truncated at the end of the cut, to free disk space on the server.
LARGE_BYTES = 8 << 20


def clear(conn: Connection, names: Sequence[sql.Identifier]) -> None:
    """Clear the staging tables that exist."""
    query = (
        "SELECT place, pg_relation_size(to_regclass(name)) FROM unnest(%s::text[]) WITH ORDINALITY "
        "AS n (name, place) WHERE to_regclass(name) IS NOT NULL"
    )
    sizes = conn.execute(query, ([name.as_string() for name in names],)).fetchall()
    statements = [_clear_sql(names[place - 1], size) for place, size in sizes if size > 0]
    if statements:
        conn.execute(sql.SQL("; ").join(statements), prepare=False)


def _clear_sql(name: sql.Identifier, size: int) -> sql.Composed:
    if size > SMALL_BYTES:
        return sql.SQL("TRUNCATE {}").format(name)
    return sql.SQL("DELETE FROM {}").format(name)


def release(conn: Connection) -> None:
    """Truncate large staging tables to free their disk space. Call it outside of a transaction."""
    query = (
        "SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema() "
        "AND relkind = 'r' AND starts_with(relname, 'ms_') AND pg_relation_size(oid) > %s"
    )
    for (name,) in conn.execute(query, (LARGE_BYTES,)).fetchall():
        conn.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier("pg_temp", name)))


# -- shapes ----------------------------------------------------------------------------------


def shapes(
    conn: Connection, asked: Mapping[BlockNames, Sequence[Block]]
) -> dict[BlockNames, tuple[str, ...]]:
    """Return the shapes of the blocks of each stream table, by one query. Call it in the cut that
    stages the rows.

    Staged columns come from the block, and from the relations that the block maintains.
    """
    relations = {names.target.as_string() for names in asked}
    relations |= {
        name
        for names, blocks in asked.items()
        for block in blocks
        for name in _stored(names, block)
    }
    columns = _columns(conn, sorted(relations))
    return {
        names: tuple(_shape(names, block, columns, last=block is blocks[-1]) for block in blocks)
        for names, blocks in asked.items()
    }


def _stored(names: BlockNames, block: Block) -> tuple[str, ...]:
    own = names.at(block.position)
    return tuple(name.as_string() for name in (own.state, own.materialized, own.shown))


def _columns(conn: Connection, relations: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return, by relation, the columns in order: name, and type, modifier and collation in one
    text.
    """
    query = (
        "SELECT r.name, array_agg(ARRAY[a.attname, concat_ws(' ', a.atttypid, a.atttypmod, a.attcollation)] "
        "ORDER BY a.attnum) FROM unnest(%s::text[]) AS r (name) "
        "JOIN pg_attribute AS a ON a.attrelid = to_regclass(r.name) AND a.attnum > 0 AND NOT a.attisdropped "
        "GROUP BY r.name"
    )
    return dict(conn.execute(query, (list(relations),)).fetchall())


def _shape(
    names: BlockNames, block: Block, columns: Mapping[str, list[tuple[str, str]]], *, last: bool
) -> str:
    # The columns of the stream table are staged by position, so their names do not matter.
    target = [type_ for _, type_ in columns.get(names.target.as_string(), ())] if last else []
    stored = [columns.get(relation, []) for relation in _stored(names, block)]
    terms = block.terms if isinstance(block, RecursionBlock) else ()
    sent = [_sent(block), *(_sent(term.block) for term in terms)]
    return digest(repr((target, stored, sent)))


def digest(text: str) -> str:
    """Return a digest of 128 bits, to be part of a name."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# Any: the values are only printed.
def _sent(block: Block) -> tuple[Any, ...]:
    """Return the columns that Spark sends for a block."""
    head = block.head if isinstance(block, GroupedBlock) else None
    return (
        block.columns,
        (head.keys, head.accumulators, head.row_columns) if head else (),
        block.kind,
    )
