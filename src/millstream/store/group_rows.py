"""Build the SQL of holistic aggregates, which PostgreSQL computes over all rows of the touched
groups.

Any aggregate can be maintained this way, also with DISTINCT and ORDER BY: Spark joins and sends the
rows of the groups, PostgreSQL evaluates the call as written in the query. Equal rows are sent once,
with a count.
"""

from __future__ import annotations

import pyarrow as pa
from psycopg import sql

from millstream.algebra.block import AggregateHead, Block
from millstream.postgres.composed import Printed, aliased, listed
from millstream.store.decode import decoded_columns
from millstream.store.names import BlockNames
from millstream.store.state import empty_select, id_sql, sent_keys


def wanted_sql(head: AggregateHead, names: BlockNames) -> sql.Composed:
    """Return a query of the wire keys of the touched groups that have rows."""
    return sql.SQL(
        "SELECT {keys}, 1 FROM {groups} AS g LEFT JOIN {state} AS s ON s.id = g.id "
        "WHERE CASE WHEN g.absolute THEN g.n0 ELSE coalesce(s.n0, 0) + g.n0 END > 0"
    ).format(keys=listed(sent_keys(head)), groups=names.groups, state=names.state)


def no_rows_sql(head: AggregateHead) -> pa.Table:
    """Return an empty Arrow table with the columns of group rows."""
    columns = [(column.name, column.wire.arrow_type) for column in (*head.keys, *head.row_columns)]
    return pa.schema([*columns, ("__net", pa.int64())]).empty_table()


def holistic_sql(block: Block, head: AggregateHead, names: BlockNames) -> sql.Composed | None:
    """Return a query of the holistic aggregates of the touched groups that have rows, by the
    group's id; None if there are none.
    """
    if not head.holistic:
        return None
    # Without keys also over no rows: there is always one group.
    grouped = sql.SQL("SELECT r.id, {values} FROM {rows} GROUP BY r.id")
    ungrouped = sql.SQL("SELECT {id} AS id, {values} FROM {rows}")
    return (grouped if head.keys else ungrouped).format(
        id=id_sql(head, "r"),
        values=listed(aliased(Printed(one.expr), one.name) for one in head.holistic),
        rows=group_rows_sql(block, head, names),
    )


def group_rows_sql(block: Block, head: AggregateHead, names: BlockNames) -> sql.Composed:
    """Return a FROM item `r` of the group rows, each as often as it occurs, in the query's own
    types.
    """
    columns = (*head.keys, *head.row_columns)
    rows = sql.SQL(
        "SELECT {columns} FROM {sent} AS d CROSS JOIN generate_series(1, d.__net)"
    ).format(
        columns=listed(decoded_columns(columns) or [sql.SQL("1 AS one")]), sent=names.group_rows
    )
    if len(block.branches) == 1 and any(c.type.collation != "none" for c in columns):
        # A cast has the database's collation; in a union that of the query's own column comes
        # first.
        like = empty_select(block, [c.name for c in columns], names)
        rows = sql.SQL("{like} UNION ALL {rows}").format(like=like, rows=rows)
    return sql.SQL("(SELECT {id} AS id, m.* FROM ({rows}) AS m) AS r").format(
        id=id_sql(head, "m"), rows=rows
    )
