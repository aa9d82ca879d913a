"""Decode the rows that Spark sent for a block without a head."""

from __future__ import annotations

from millstream.algebra.block import Block
from millstream.algebra.table import quoted
from millstream.store.names import BlockNames
from millstream.store.state import empty_select


def decoded_rows(block: Block, names: BlockNames, rows: str | None = None) -> str:
    """Return a FROM item `d` of the sent rows, or of `rows`, in the query's own types and collations."""
    columns = [f"{c.wire.decode_sql(f'd.{quoted(c.name)}', c.type)} AS {quoted(c.name)}" for c in block.columns]
    decoded = f"SELECT {', '.join([*columns, 'd.__net'])} FROM {rows or names.delta} AS d"
    if len(block.branches) > 1 or all(c.type.collation == "none" for c in block.columns):
        return f"({decoded}) AS d"
    # A cast has the database's collation; in a union that of the query's own column comes first.
    like = empty_select(block, [c.name for c in block.columns], names)
    return f"(SELECT e.*, NULL::bigint AS __net FROM ({like}) AS e UNION ALL {decoded}) AS d"
