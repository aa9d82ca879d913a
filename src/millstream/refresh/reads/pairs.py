"""Find the pairs of rows that satisfy a condition, by joins in PostgreSQL.

    changed rows of one input      joined to the stored rows of the other      - image
    changed rows of the other      joined to the stored rows of the first      - image
    changed rows of both           joined to each other                        - image * image

An image counts -1 for a row that was inserted and +1 for one that was deleted. The stored rows are
those after the change, so the sum of the three is by how much the number of each pair changes. The
changed rows are sent under the alias and the column names of their table, and the condition reads
them as it reads the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa
from psycopg import sql

from millstream.algebra.block import Branch, Input, PairsBlock
from millstream.postgres.composed import Printed, all_of, in_parentheses, listed
from millstream.postgres.copy import Parts
from millstream.refresh.reads.access_paths import AccessPaths
from millstream.spark.parts import Result
from millstream.store.names import from_item
from millstream.store.staging_columns import decoded

_COUNT = "__ms_count"


def all_pairs(block: PairsBlock, access: AccessPaths) -> Result:
    """Return every pair, once."""
    one, other = block.branches[0].inputs
    items = [_stored(each, access) for each in (one, other)]
    query = joined_sql(block, items, sql.SQL("1"), [*_filters(one), *_filters(other)])
    return Result(_schema(block), access.by_condition(other, query, _schema(block), "all pairs"))


def changed_pairs(block: PairsBlock, images: Mapping[str, pa.Table], access: AccessPaths) -> Result:
    """Return by how much the number of each pair changes."""
    # All are read before any is applied: the rows are applied by COPY in the same session.
    return Result(_schema(block), chain.from_iterable(list(_changes(block, images, access))))


def _changes(
    block: PairsBlock, images: Mapping[str, pa.Table], access: AccessPaths
) -> Iterator[Parts]:
    one, other = block.branches[0].inputs
    changed = [each for each in (one, other) if images[each.name].num_rows]
    for sender, receiver in ((one, other), (other, one)):
        if sender not in changed:
            continue
        items = [_sent(sender, images[sender.name], access), _stored(receiver, access)]
        net = sql.SQL("- {}").format(_count(sender))
        query = joined_sql(block, items, net, _filters(receiver))
        why = f"{images[sender.name].num_rows} rows by a condition"
        yield access.by_condition(receiver, query, _schema(block), why)
    if len(changed) == 2:
        items = [
            _sent(each, images[each.name], access, letter)
            for each, letter in ((one, "w"), (other, "v"))
        ]
        net = sql.SQL("- {} * {}").format(_count(one), _count(other))
        query = joined_sql(block, items, net, [])
        yield access.by_condition(other, query, _schema(block), "changed rows of both")


def _schema(block: PairsBlock) -> pa.Schema:
    fields = [(column.name, column.wire.arrow_type) for column in block.columns]
    return pa.schema([*fields, ("__net", pa.int64())])


def joined_sql(
    block: PairsBlock,
    items: Sequence[sql.Composable],
    net: sql.Composable,
    filters: Sequence[sql.Composable],
) -> sql.Composed:
    """Return the query of the pairs of two FROM items, each with its count."""
    branch = block.branches[0]
    columns = [_leaf_sql(branch, column.name) for column in block.columns]
    conditions = [Printed(block.condition.sql), *filters]
    return sql.SQL("SELECT {}, ({})::bigint FROM {} CROSS JOIN {} WHERE {}").format(
        listed(columns), net, *items, all_of(map(in_parentheses, conditions))
    )


def _leaf_sql(branch: Branch, name: str) -> sql.Composable:
    """Return the SQL that sends a column of the body."""
    leaf = next(leaf for column, leaf in branch.sources if column == name)
    assert leaf is not None, "a pair consists of columns"
    return Printed(branch.input(leaf.alias).leaf(leaf.column).sql)


def _stored(one: Input, access: AccessPaths) -> sql.Composable:
    return from_item(one.scan, access.names.source(one.scan.table))


def _filters(one: Input) -> list[sql.Composable]:
    return [Printed(condition.sql) for condition in one.filters]


def _count(one: Input) -> sql.Identifier:
    return sql.Identifier(one.scan.alias, _COUNT)


def _sent(one: Input, rows: pa.Table, access: AccessPaths, letter: str = "w") -> sql.Composable:
    """Send images; return the FROM item of them, with the alias, columns and collations of their
    table.
    """
    names = [sql.Identifier(ref.column) for leaf in one.leaves if (ref := leaf.expr.as_ref)]
    values = [
        decoded(sql.Identifier("r", f"{letter}{number}"), leaf.wire, leaf.type)
        for number, leaf in enumerate(one.leaves)
    ]
    columns = [*(leaf.name for leaf in one.leaves), "__before"]
    # The union with no row of the table gives the columns their collations.
    return _SENT.format(
        names=listed(names),
        count=sql.Identifier(_COUNT),
        table=access.names.source(one.scan.table),
        values=listed([*values, sql.Identifier("r", f"{letter}{len(values)}")]),
        rows=access.rows_relation(rows.select(columns), letter),
        alias=sql.Identifier(one.scan.alias),
    )


_SENT = sql.SQL(
    "(SELECT {names}, 0::bigint AS {count} FROM {table} WHERE false "
    "UNION ALL SELECT {values} FROM {rows} AS r) AS {alias}"
)
