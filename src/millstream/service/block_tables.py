"""Create, replace and drop the tables and views of a stream table's blocks.

A plan is recorded as its printed text. If a view under the query was replaced, or a newer
Millstream plans differently, the state does not match the new plan. It is then created again,
empty, and the next refresh computes the rows in full and applies the difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import psycopg
from psycopg import sql

from millstream.algebra.block import Block, GroupedBlock, LimitBlock
from millstream.algebra.relation import Order
from millstream.algebra.table import BlockRows
from millstream.catalog import blocks, stream_tables
from millstream.catalog.stream_tables import StreamTable
from millstream.compiler.blocks.demand import crossing_lookups, lookups
from millstream.compiler.server.plan_query import QueryPlan, state_sql
from millstream.large_stack import on_large_stack
from millstream.observe import log
from millstream.postgres import fence
from millstream.postgres.connection import Connection
from millstream.store import state
from millstream.store.names import BlockNames


@on_large_stack
def create(conn: Connection, table: StreamTable, planned: QueryPlan) -> None:
    """Create and record the state, materialized rows and views of the blocks, with their indexes."""
    names = BlockNames(table.id, table.schema_name, table.name)
    for block in planned.blocks:
        for statement in _statements(planned, block, names):
            conn.execute(statement)
    for block, reader, columns in lookups(planned.blocks):
        _index(conn, state.index_sql(block, names.at(block.position), reader, columns))
    for block in planned.blocks:
        if (
            isinstance(block, LimitBlock)
            and block.order
            and isinstance(block.input.scan.table, BlockRows)
        ):
            below = planned.blocks[block.input.scan.table.block]
            _index(
                conn,
                state.order_index_sql(below, names.at(below.position), block.input, block.order),
            )
    for below, one, value in crossing_lookups(planned.blocks):
        _index(conn, state.order_index_sql(below, names.at(below.position), one, [Order(value)]))
    blocks.add(conn, table.id, [_recorded(conn, planned, block, names) for block in planned.blocks])


def drop(conn: Connection, table: StreamTable) -> None:
    """Drop the state, the materialized rows and the views of the blocks."""
    names = BlockNames(table.id, table.schema_name, table.name)
    for block in blocks.of(conn, table.id):
        own = names.at(block.position)
        conn.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(own.shown))
        drop = sql.SQL("DROP TABLE IF EXISTS {}, {}")
        conn.execute(drop.format(own.state, own.materialized))


def replace(conn: Connection, table: StreamTable, planned: QueryPlan) -> bool:
    """Replace the state if the plan has changed; the stream table then has no frontier until it is
    populated again.
    """
    names = BlockNames(table.id, table.schema_name, table.name)
    wanted = [(str(block), _storage(planned, block, names)) for block in planned.blocks]
    if _is_as_recorded(wanted, blocks.of(conn, table.id)):
        return False
    log.warning("planned otherwise", table=table.name)
    with conn.transaction():
        drop(conn, table)
        create(conn, table, planned)
        stream_tables.start_over(conn, table.id)
        fence.hold(conn)
    return True


def _is_as_recorded(
    wanted: Sequence[tuple[str, str]], recorded: Sequence[blocks.RecordedBlock]
) -> bool:
    """Return True if these are the plan and the storage of each recorded block."""
    if [plan for plan, _ in wanted] != [block.plan for block in recorded]:
        return False
    # Older versions did not record the storage.
    pairs = zip(
        (storage for _, storage in wanted), (block.storage for block in recorded), strict=True
    )
    return all(there in (None, storage) for storage, there in pairs)


def _index(conn: Connection, statement: sql.Composed) -> None:
    try:
        with conn.transaction():
            conn.execute(statement)
    except psycopg.errors.InvalidObjectDefinition:
        log.info("no index for lookups", statement=statement.as_string(conn))


def _statements(planned: QueryPlan, block: Block, names: BlockNames) -> list[sql.Composed]:
    return state_sql(block, names.at(block.position), inner=block is not planned.block)


@on_large_stack
def _storage(planned: QueryPlan, block: Block, names: BlockNames) -> str:
    """Return a digest of the block's state, including the types of its columns, which are not in
    the plan.
    """
    # With the name at creation: the names of state tables contain the id.
    named = BlockNames(names.id, "", "")
    statements = sql.SQL("; ").join(_statements(planned, block, named))
    return hashlib.md5(statements.as_bytes(), usedforsecurity=False).hexdigest()


def _recorded(
    conn: Connection, planned: QueryPlan, block: Block, names: BlockNames
) -> blocks.RecordedBlock:
    state_name = names.at(block.position).state
    oid = relation_oid(conn, state_name) if isinstance(block, GroupedBlock) else None
    return blocks.RecordedBlock(
        block.position, block.name, block.kind, oid, str(block), _storage(planned, block, names)
    )


def relation_oid(conn: Connection, relation: sql.Identifier) -> int:
    """Return the oid of an existing relation."""
    row = conn.execute("SELECT %s::regclass::oid::int8", (relation.as_string(),)).fetchone()
    assert row is not None
    oid: int = row[0]
    return oid
