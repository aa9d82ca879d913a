"""Build the SQL of holistic aggregates, which PostgreSQL computes over all rows of the touched
groups.

Any aggregate can be maintained this way, also with DISTINCT and ORDER BY: Spark joins and sends the
rows of the groups, PostgreSQL evaluates the call as written in the query. Equal rows are sent once,
with a count.
"""

from __future__ import annotations

import pyarrow as pa

from millstream.algebra.block import AggregateHead, Block
from millstream.store.decode import decoded_columns
from millstream.store.names import BlockNames
from millstream.store.state import empty_select, id_sql, sent_keys


def wanted_sql(head: AggregateHead, names: BlockNames) -> str:
    """Return a query of the wire keys of the touched groups that have rows."""
    keys = sent_keys(head) or ["1"]
    rows = "CASE WHEN g.absolute THEN g.n0 ELSE coalesce(s.n0, 0) + g.n0 END"
    return (
        f"SELECT {', '.join([*keys, '1'])} FROM {names.groups} AS g LEFT JOIN {names.state} AS s ON s.id = g.id "
        f"WHERE {rows} > 0"
    )


def no_rows_sql(head: AggregateHead) -> pa.Table:
    """Return an empty Arrow table with the columns of group rows."""
    columns = [(column.name, column.wire.arrow_type) for column in (*head.keys, *head.row_columns)]
    return pa.schema([*columns, ("__net", pa.int64())]).empty_table()


def holistic_sql(block: Block, head: AggregateHead, names: BlockNames) -> str:
    """Return a query of the holistic aggregates of the touched groups that have rows, by the
    group's id.
    """
    if not head.holistic:
        return ""
    values = ", ".join(f"{one.expr} AS {one.name}" for one in head.holistic)
    if not head.keys:
        # Also over no rows: there is always one group.
        return (
            f"SELECT {id_sql(head, 'r')} AS id, {values} FROM {group_rows_sql(block, head, names)}"
        )
    return f"SELECT r.id, {values} FROM {group_rows_sql(block, head, names)} GROUP BY r.id"


def group_rows_sql(block: Block, head: AggregateHead, names: BlockNames) -> str:
    """Return a FROM item `r` of the group rows, each as often as it occurs, in the query's own
    types.
    """
    columns = (*head.keys, *head.row_columns)
    decoded = ", ".join(decoded_columns(columns)) or "1 AS one"
    rows = f"SELECT {decoded} FROM {names.group_rows} AS d CROSS JOIN generate_series(1, d.__net)"
    if len(block.branches) == 1 and any(c.type.collation != "none" for c in columns):
        # A cast has the database's collation; in a union that of the query's own column comes
        # first.
        rows = f"{empty_select(block, [c.name for c in columns], names)} UNION ALL {rows}"
    return f"(SELECT {id_sql(head, 'm')} AS id, m.* FROM ({rows}) AS m) AS r"
