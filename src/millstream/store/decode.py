"""Decode the rows that Spark sent, and consolidate them."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.algebra.block import Block, BlockColumn
from millstream.algebra.table import quoted
from millstream.store.names import BlockNames
from millstream.store.state import empty_select


def decoded_columns(columns: Iterable[BlockColumn]) -> list[str]:
    """Return columns of the sent rows `d` in the query's own types, under their names."""
    return [
        f"{c.wire.decode_sql(f'd.{quoted(c.name)}', c.type)} AS {quoted(c.name)}" for c in columns
    ]


def consolidated_sql(rows: str, key: str, net: str) -> str:
    """Return a query of each distinct row, once, with `total`, the sum of its `net`; without those
    that cancel.

    `key` is an expression over `x`, a row of `rows`: rows with the same key are the same row.
    """
    summed = (
        f"SELECT x.*, sum(x.{net}) OVER w AS total, row_number() OVER w AS nth FROM ({rows}) AS x"
    )
    return f"SELECT * FROM ({summed} WINDOW w AS (PARTITION BY {key})) AS y WHERE y.nth = 1 AND y.total <> 0"


def decoded_rows(block: Block, names: BlockNames, rows: str | None = None) -> str:
    """Return a FROM item `d` of the sent rows, or of `rows`, in the query's own types and
    collations.
    """
    decoded = f"SELECT {', '.join([*decoded_columns(block.columns), 'd.__net'])} FROM {rows or names.delta} AS d"
    if len(block.branches) > 1 or all(c.type.collation == "none" for c in block.columns):
        return f"({decoded}) AS d"
    # A cast has the database's collation; in a union that of the query's own column comes first.
    like = empty_select(block, [c.name for c in block.columns], names)
    return f"(SELECT e.*, NULL::bigint AS __net FROM ({like}) AS e UNION ALL {decoded}) AS d"
