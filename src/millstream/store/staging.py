"""Staging tables: temporary tables of a session that hold what is to be applied.

A staging table is made for a shape (the columns of what is staged, with their types and collations), not for a stream
table. Stream tables of one shape use it in turn, each after it has been cleared:

    500 sums by region      three staging tables in all, not 1,500

PostgreSQL holds every lock until the transaction ends, and a new temporary table with its row type, its TOAST table and
the index of that takes four. ON COMMIT DELETE ROWS would not do: each commit then truncates every such table of the
session, used or not, under three locks each and for some milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.algebra.block import Block
from millstream.postgres.connection import Connection
from millstream.store.names import BlockNames

# Up to this size rows are deleted one by one: TRUNCATE makes new files, which costs as much as some thousand rows.
SMALL_BYTES = 1 << 20
# A staging table that is larger when the cut has ended is truncated, so that the server has the disk space back.
LARGE_BYTES = 8 << 20


def clear(conn: Connection, names: Sequence[str]) -> None:
    """Empty those of these staging tables that exist."""
    query = (
        "SELECT 'pg_temp.' || relname, pg_relation_size(oid) FROM pg_class "
        "WHERE relnamespace = pg_my_temp_schema() AND relname = ANY(%s)"
    )
    sizes = conn.execute(query, ([name.removeprefix("pg_temp.") for name in names],)).fetchall()
    statements = [f"DELETE FROM {name}" for name, size in sizes if 0 < size <= SMALL_BYTES]
    statements += [f"TRUNCATE {name}" for name, size in sizes if size > SMALL_BYTES]
    if statements:
        conn.execute("; ".join(statements).encode(), prepare=False)


def release(conn: Connection) -> None:
    """Give the disk space of large staging tables back, outside any transaction."""
    query = (
        "SELECT format('pg_temp.%%I', relname) FROM pg_class WHERE relnamespace = pg_my_temp_schema() "
        "AND relkind = 'r' AND starts_with(relname, 'ms_') AND pg_relation_size(oid) > %s"
    )
    for (name,) in conn.execute(query, (LARGE_BYTES,)).fetchall():
        conn.execute(f"TRUNCATE {name}".encode())


# -- shapes ----------------------------------------------------------------------------------


def shapes(conn: Connection, asked: Mapping[BlockNames, Sequence[Block]]) -> dict[BlockNames, tuple[str, ...]]:
    """For each stream table the shapes of its blocks; one query for all. Ask in the cut that stages the rows.

    What is staged has its columns from the block, and from the relations that the block maintains.
    """
    relations = {names.target for names in asked}
    relations |= {name for names, blocks in asked.items() for block in blocks for name in _stored(names, block)}
    columns = _columns(conn, sorted(relations))
    return {
        names: tuple(_shape(names, block, columns, last=block is blocks[-1]) for block in blocks)
        for names, blocks in asked.items()
    }


def _stored(names: BlockNames, block: Block) -> tuple[str, ...]:
    own = names.at(block.position)
    return own.state, own.materialized, own.shown


def _columns(conn: Connection, relations: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """The columns of relations, in order: the name; type, modifier and collation."""
    query = (
        "SELECT r.name, array_agg(ARRAY[a.attname, concat_ws(' ', a.atttypid, a.atttypmod, a.attcollation)] "
        "ORDER BY a.attnum) FROM unnest(%s::text[]) AS r (name) "
        "JOIN pg_attribute AS a ON a.attrelid = to_regclass(r.name) AND a.attnum > 0 AND NOT a.attisdropped "
        "GROUP BY r.name"
    )
    return dict(conn.execute(query, (list(relations),)).fetchall())


def _shape(names: BlockNames, block: Block, columns: Mapping[str, list[tuple[str, str]]], *, last: bool) -> str:
    # Of the stream table itself columns are staged by position, whatever they are called.
    target = [type_ for _, type_ in columns.get(names.target, ())] if last else []
    stored = [columns.get(relation, []) for relation in _stored(names, block)]
    sent = [_sent(block), *(_sent(term.block) for term in block.terms)]
    return digest(repr((target, stored, sent)))


def digest(text: str) -> str:
    """128 bits that stand for a text in a name."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# Of any types: printed, not used.
def _sent(block: Block) -> tuple[Any, ...]:
    """What Spark sends of a block."""
    head, kept = block.head, block.materialized
    return block.columns, (head.keys, head.accumulators, head.row_columns) if head else (), kept.kind if kept else ""
