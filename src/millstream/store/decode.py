"""Decode the rows that Spark sent, and consolidate them."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from millstream.algebra.block import Block, BlockColumn
from millstream.postgres.composed import aliased, listed
from millstream.store.names import BlockNames
from millstream.store.staging_columns import decoded
from millstream.store.state import empty_select


def decoded_columns(columns: Iterable[BlockColumn]) -> list[sql.Composed]:
    """Return columns of the sent rows `d` in the query's own types, under their names."""
    return [aliased(decoded(sql.Identifier("d", c.name), c.wire, c.type), c.name) for c in columns]


def consolidated_sql(rows: sql.Composable, key: sql.Composable, net: str) -> sql.Composed:
    """Return a query of each distinct row, once, with `total`, the sum of its `net`; without those
    that cancel.

    `key` is an expression over `x`, a row of `rows`: rows with the same key are the same row.
    """
    summed = sql.SQL(
        "SELECT x.*, sum({net}) OVER w AS total, row_number() OVER w AS nth FROM ({rows}) AS x"
    ).format(net=sql.Identifier("x", net), rows=rows)
    return sql.SQL(
        "SELECT * FROM ({summed} WINDOW w AS (PARTITION BY {key})) AS y WHERE y.nth = 1 AND y.total <> 0"
    ).format(summed=summed, key=key)


def decoded_rows(
    block: Block, names: BlockNames, rows: sql.Composable | None = None
) -> sql.Composed:
    """Return a FROM item `d` of the sent rows, or of `rows`, in the query's own types and
    collations.
    """
    query = sql.SQL("SELECT {columns} FROM {rows} AS d").format(
        columns=listed([*decoded_columns(block.columns), sql.Identifier("d", "__net")]),
        rows=rows or names.delta,
    )
    if len(block.branches) > 1 or all(c.type.collation == "none" for c in block.columns):
        return sql.SQL("({}) AS d").format(query)
    # A cast has the database's collation; in a union that of the query's own column comes first.
    return sql.SQL(
        "(SELECT e.*, NULL::bigint AS __net FROM ({like}) AS e UNION ALL {query}) AS d"
    ).format(like=empty_select(block, [c.name for c in block.columns], names), query=query)
