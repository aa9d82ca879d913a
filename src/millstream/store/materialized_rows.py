"""Build the SQL of materialized rows: windows, limits, and joins that other blocks read.

    new      the new rows of the touched parts
    changes  images: rows that are stored and not new, rows that are new and not stored

A part is computed as a whole: a partition of a window, all rows of a limit, the equal rows of a
bag.
"""

from __future__ import annotations

from psycopg import sql

from millstream.algebra.block import LEVEL, Block, LimitBlock, RecursionBlock, WindowBlock
from millstream.algebra.table import ROW
from millstream.postgres.composed import Printed, all_of, in_parentheses, listed, row_text
from millstream.store.decode import consolidated_sql, decoded_rows
from millstream.store.group_rows import group_rows_sql
from millstream.store.names import PART, BlockNames, from_item
from millstream.store.staging_columns import columns_of, stage, staged, stages, unstage
from millstream.store.state import empty_select, outputs_sql, row_id

_WHOLE = sql.SQL("'00000000-0000-0000-0000-000000000000'::uuid")


def create_sql(block: Block, names: BlockNames) -> list[sql.Composed]:
    """Return the statements that create the table of rows, and the view by which other blocks read
    it.
    """
    create = sql.SQL(
        "CREATE TABLE {materialized} AS SELECT NULL::uuid AS part, {outputs} FROM {nothing}"
    ).format(
        materialized=names.materialized, outputs=outputs_sql(block), nothing=_nothing(block, names)
    )
    view = sql.SQL(
        "CREATE VIEW {shown} AS SELECT {columns}, ctid::text AS {row}, part AS {part} FROM {materialized}"
    ).format(
        shown=names.shown,
        columns=_columns(block),
        row=sql.Identifier(ROW),
        part=sql.Identifier(PART),
        materialized=names.materialized,
    )
    return [create, sql.SQL("CREATE INDEX ON {} (part)").format(names.materialized), view]


def new_sql(block: Block, names: BlockNames, *, full: bool) -> list[sql.Composed]:
    """Return the statements that fill `new`."""
    match block:
        case WindowBlock():
            rows = _window(block, names)
        case LimitBlock():
            rows = _limit(block, names)
        case _:
            rows = copies_sql(block, names, in_parentheses(_bag_rows(block, names)), full=full)
    return filled_sql(block, names, rows)


def filled_sql(block: Block, names: BlockNames, rows: sql.Composable) -> list[sql.Composed]:
    """Return the statements that fill the empty table `new` with these rows: part and columns."""
    stored = sql.SQL("SELECT * FROM {}").format(names.materialized)
    create = sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {new} AS {like} WITH NO DATA").format(
        new=names.new, like=stage(columns_of(block), stored, sql.SQL("s.part"))
    )
    insert = sql.SQL("INSERT INTO {} {}").format(names.new, staged_rows(block, rows))
    return [create, insert]


def staged_rows(block: Block, rows: sql.Composable) -> sql.Composable:
    """Return a query of part and columns, in the types of staging tables."""
    columns = columns_of(block)
    if not stages(columns):
        return rows
    named = sql.SQL("SELECT * FROM ({rows}) AS q (part, {columns})").format(
        rows=rows, columns=_columns(block)
    )
    return stage(columns, named, sql.SQL("s.part"))


def change_sql(block: Block, names: BlockNames, *, full: bool) -> list[sql.Composed]:
    """Return the statements that record the images in `changes`, then apply them to the stored
    rows.
    """
    delete = sql.SQL(
        "DELETE FROM {materialized} WHERE ctid IN "
        "(SELECT {row}::tid FROM {changes} WHERE __ms_action = 'D')"
    ).format(materialized=names.materialized, row=sql.Identifier(ROW), changes=names.changes)
    came = unstage(
        columns_of(block), names.changes, sql.SQL("s.__ms_action"), sql.Identifier("s", PART)
    )
    insert = sql.SQL(
        "INSERT INTO {materialized} SELECT {part}, {columns} FROM {came} AS c WHERE __ms_action = 'I'"
    ).format(
        materialized=names.materialized,
        part=sql.Identifier(PART),
        columns=_columns(block),
        came=came,
    )
    return [_images(block, names, full=full), delete, insert]


def _images(block: Block, names: BlockNames, *, full: bool) -> sql.Composed:
    """Return the statement that records how `new` differs from the stored rows of the touched
    parts; equal rows are numbered.
    """
    stored = [staged(sql.Identifier("o", c.name), c.type) for c in columns_of(block)]
    text = row_text(_column_list(block))
    numbered = sql.SQL("{text} AS t, row_number() OVER (PARTITION BY part, {text}) AS n").format(
        text=text
    )
    return sql.SQL(
        "INSERT INTO {changes} WITH stored AS MATERIALIZED (SELECT ctid AS tid, k.*, {numbered} "
        "FROM {materialized} AS k WHERE {touched}), "
        "fresh AS MATERIALIZED (SELECT k.*, {numbered} FROM {new} AS k) "
        "SELECT 'D', {stored}, o.tid::text, o.part FROM stored AS o "
        "WHERE NOT EXISTS (SELECT FROM fresh AS f WHERE (f.part, f.t, f.n) = (o.part, o.t, o.n)) "
        "UNION ALL SELECT 'I', {columns}, NULL, f.part FROM fresh AS f "
        "WHERE NOT EXISTS (SELECT FROM stored AS o WHERE (f.part, f.t, f.n) = (o.part, o.t, o.n))"
    ).format(
        changes=names.changes,
        numbered=numbered,
        materialized=names.materialized,
        touched=sql.SQL("true") if full else _touched(block, names),
        new=names.new,
        stored=listed(stored),
        columns=_columns(block),
    )


def _column_list(block: Block) -> list[sql.Identifier]:
    return [sql.Identifier(column.name) for column in columns_of(block)]


def _columns(block: Block) -> sql.Composed:
    return listed(_column_list(block))


def _nothing(block: Block, names: BlockNames) -> sql.Composed:
    """Return an empty FROM item over which the outputs can be evaluated, to get their types."""
    match block:
        case LimitBlock():
            return sql.SQL("{} WHERE false").format(_source(block, names))
        case RecursionBlock():
            own = [c.name for c in columns_of(block) if c.name != LEVEL]
            return sql.SQL("({query}) AS q ({columns}) WHERE false").format(
                query=Printed(block.text), columns=listed(map(sql.Identifier, own))
            )
        case WindowBlock(head=head):
            rows = empty_select(block, [column.name for column in head.row_columns], names)
            return sql.SQL("({}) AS r").format(rows)
    rows = empty_select(block, [column.name for column in block.columns], names)
    return sql.SQL("({}) AS d").format(rows)


def _touched(block: Block, names: BlockNames) -> sql.Composable:
    """Return the condition for stored rows of the touched parts."""
    match block:
        case WindowBlock():
            return sql.SQL("part IN (SELECT id FROM {})").format(names.groups)
        case RecursionBlock():
            return sql.SQL("part IN (SELECT part FROM {})").format(names.steps)
        case LimitBlock():
            return sql.SQL("true")
    return sql.SQL("part IN (SELECT part FROM ({}) AS b)").format(_bag_rows(block, names))


# -- computing the rows ----------------------------------------------------------------------


def _window(block: WindowBlock, names: BlockNames) -> sql.Composed:
    return sql.SQL("SELECT r.id, {} FROM {}").format(
        outputs_sql(block), group_rows_sql(block, block.head, names)
    )


def _limit(block: LimitBlock, names: BlockNames) -> sql.Composed:
    filters = [in_parentheses(Printed(condition.sql)) for condition in block.input.filters]
    where = sql.SQL(" WHERE {}").format(all_of(filters)) if filters else sql.SQL("")
    return sql.SQL("SELECT {part}, {outputs} FROM {source}{where} {tail}").format(
        part=_WHOLE,
        outputs=outputs_sql(block),
        source=_source(block, names),
        where=where,
        tail=Printed(block.tail),
    )


def _source(block: LimitBlock, names: BlockNames) -> sql.Composed:
    scan = block.input.scan
    return from_item(scan, names.source(scan.table))


def _bag_rows(block: Block, names: BlockNames) -> sql.Composed:
    """Return a query of each distinct row: its hash, and the change of its number of copies."""
    hashed = sql.SQL(
        "SELECT {part} AS part, r.* FROM (SELECT {outputs}, d.__net AS __ms_net FROM {rows}) AS r"
    ).format(
        part=row_id([sql.Identifier("r", column.name) for column in columns_of(block)]),
        outputs=outputs_sql(block),
        rows=decoded_rows(block, names),
    )
    return sql.SQL("SELECT part, {columns}, total AS __ms_net FROM ({consolidated}) AS z").format(
        columns=_columns(block),
        consolidated=consolidated_sql(hashed, sql.SQL("x.part"), "__ms_net"),
    )


def copies_sql(
    block: Block, names: BlockNames, changes: sql.Composable, *, full: bool
) -> sql.Composed:
    """Return a query of the rows that are then stored: each as often as it is stored now, and its
    change more.

    With `full`, what is stored now does not count.
    """
    copies = sql.SQL("{} + b.__ms_net").format(stored_copies_sql(names))
    return sql.SQL(
        "SELECT b.part, {columns} FROM {changes} AS b CROSS JOIN LATERAL generate_series(1, {copies})"
    ).format(
        columns=listed(sql.Identifier("b", column.name) for column in columns_of(block)),
        changes=changes,
        copies=sql.SQL("b.__ms_net") if full else copies,
    )


def stored_copies_sql(names: BlockNames) -> sql.Composed:
    """Return the number of stored copies of the row `b`."""
    return sql.SQL("(SELECT count(*) FROM {} AS k WHERE k.part = b.part)").format(
        names.materialized
    )
