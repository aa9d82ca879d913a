"""Build the SQL of materialized rows: windows, limits, and joins that other blocks read.

    new      the new rows of the touched parts
    changes  images: rows that are stored and not new, rows that are new and not stored

A part is computed as a whole: a partition of a window, all rows of a limit, the equal rows of a
bag.
"""

from __future__ import annotations

from millstream.algebra.block import LEVEL, Block, LimitBlock, RecursionBlock, WindowBlock
from millstream.algebra.table import ROW, quoted
from millstream.algebra.text_io import staged_sql
from millstream.store.decode import consolidated_sql, decoded_rows
from millstream.store.group_rows import group_rows_sql
from millstream.store.names import PART, BlockNames, row_hash
from millstream.store.staging_columns import columns_of, stage, stages, unstage
from millstream.store.state import empty_select

_WHOLE = "'00000000-0000-0000-0000-000000000000'::uuid"


def create_sql(block: Block, names: BlockNames) -> list[str]:
    """Return the statements that create the table of rows, and the view by which other blocks read
    it.
    """
    columns = _columns(block)
    return [
        f"CREATE TABLE {names.materialized} AS "
        f"SELECT NULL::uuid AS part, {_outputs(block)} FROM {_nothing(block, names)}",
        f"CREATE INDEX ON {names.materialized} (part)",
        f"CREATE VIEW {names.shown} AS SELECT {columns}, ctid::text AS {ROW}, part AS {PART} FROM {names.materialized}",
    ]


def new_sql(block: Block, names: BlockNames, *, full: bool) -> list[str]:
    """Return the statements that fill `new`."""
    match block:
        case WindowBlock():
            rows = _window(block, names)
        case LimitBlock():
            rows = _limit(block, names)
        case _:
            rows = _bag_full(block, names) if full else _bag(block, names)
    return filled_sql(block, names, rows)


def filled_sql(block: Block, names: BlockNames, rows: str) -> list[str]:
    """Return the statements that fill the empty table `new` with these rows: part and columns."""
    like = stage(columns_of(block), f"SELECT * FROM {names.materialized}", "s.part")
    create = f"CREATE TEMPORARY TABLE IF NOT EXISTS {names.new.removeprefix('pg_temp.')} AS {like} WITH NO DATA"
    return [create, f"INSERT INTO {names.new} {staged_rows(block, rows)}"]


def staged_rows(block: Block, rows: str) -> str:
    """Return a query of part and columns, in the types of staging tables."""
    named = (
        f"SELECT * FROM ({rows}) AS q (part, {_columns(block)})"
        if stages(columns_of(block))
        else rows
    )
    return stage(columns_of(block), named, "s.part")


def change_sql(block: Block, names: BlockNames, *, full: bool) -> list[str]:
    """Return the statements that record the images in `changes`, then apply them to the stored
    rows.
    """
    columns, own = _columns(block), columns_of(block)
    staged = ", ".join(staged_sql(f"o.{quoted(c.name)}", c.type) for c in own)
    came = unstage(own, names.changes, "s.__ms_action", f"s.{PART}")
    text = f"ROW({columns})::text"
    numbered = f"{text} AS t, row_number() OVER (PARTITION BY part, {text}) AS n"
    gone = "SELECT FROM fresh AS f WHERE (f.part, f.t, f.n) = (o.part, o.t, o.n)"
    known = "SELECT FROM stored AS o WHERE (f.part, f.t, f.n) = (o.part, o.t, o.n)"
    return [
        f"INSERT INTO {names.changes} WITH stored AS MATERIALIZED (SELECT ctid AS tid, k.*, {numbered} "
        f"FROM {names.materialized} AS k WHERE {'true' if full else _touched(block, names)}), "
        f"fresh AS MATERIALIZED (SELECT k.*, {numbered} FROM {names.new} AS k) "
        f"SELECT 'D', {staged}, o.tid::text, o.part FROM stored AS o WHERE NOT EXISTS ({gone}) "
        f"UNION ALL SELECT 'I', {columns}, NULL, f.part FROM fresh AS f WHERE NOT EXISTS ({known})",
        f"DELETE FROM {names.materialized} WHERE ctid IN "
        f"(SELECT {ROW}::tid FROM {names.changes} WHERE __ms_action = 'D')",
        f"INSERT INTO {names.materialized} SELECT {PART}, {columns} FROM {came} AS c WHERE __ms_action = 'I'",
    ]


def _columns(block: Block) -> str:
    return ", ".join(quoted(output.column.name) for output in block.outputs)


def _outputs(block: Block) -> str:
    return ", ".join(f"{output.expr} AS {quoted(output.column.name)}" for output in block.outputs)


def _nothing(block: Block, names: BlockNames) -> str:
    """Return an empty FROM item over which the outputs can be evaluated, to get their types."""
    match block:
        case LimitBlock():
            return f"{_source(block, names)} WHERE false"
        case RecursionBlock():
            listed = ", ".join(
                quoted(output.column.name)
                for output in block.outputs
                if output.column.name != LEVEL
            )
            return f"({block.text}) AS q ({listed}) WHERE false"
        case WindowBlock(head=head):
            return (
                f"({empty_select(block, [column.name for column in head.row_columns], names)}) AS r"
            )
    return f"({empty_select(block, [column.name for column in block.columns], names)}) AS d"


def _touched(block: Block, names: BlockNames) -> str:
    """Return the condition for stored rows of the touched parts."""
    match block:
        case WindowBlock():
            return f"part IN (SELECT id FROM {names.groups})"
        case RecursionBlock():
            return f"part IN (SELECT part FROM {names.steps})"
        case LimitBlock():
            return "true"
    return f"part IN (SELECT part FROM ({_bag_rows(block, names)}) AS b)"


# -- computing the rows ----------------------------------------------------------------------


def _window(block: WindowBlock, names: BlockNames) -> str:
    return f"SELECT r.id, {_outputs(block)} FROM {group_rows_sql(block, block.head, names)}"


def _limit(block: LimitBlock, names: BlockNames) -> str:
    where = " AND ".join(f"({condition.sql})" for condition in block.input.filters)
    kept = f" WHERE {where}" if where else ""
    return f"SELECT {_WHOLE}, {_outputs(block)} FROM {_source(block, names)}{kept} {block.tail}"


def _source(block: LimitBlock, names: BlockNames) -> str:
    scan = block.input.scan
    return scan.item(names.source(scan.table))


def _bag_rows(block: Block, names: BlockNames) -> str:
    """Return a query of each distinct row: its hash, and the change of its number of copies."""
    rows = f"SELECT {_outputs(block)}, d.__net AS __ms_net FROM {decoded_rows(block, names)}"
    part = f"encode({row_hash([f'r.{quoted(output.column.name)}' for output in block.outputs])}, 'hex')::uuid"
    consolidated = consolidated_sql(
        f"SELECT {part} AS part, r.* FROM ({rows}) AS r", "x.part", "__ms_net"
    )
    return f"SELECT part, {_columns(block)}, total AS __ms_net FROM ({consolidated}) AS z"


def _bag(block: Block, names: BlockNames) -> str:
    return copies_sql(block, names, f"({_bag_rows(block, names)})", full=False)


def _bag_full(block: Block, names: BlockNames) -> str:
    return copies_sql(block, names, f"({_bag_rows(block, names)})", full=True)


def copies_sql(block: Block, names: BlockNames, changes: str, *, full: bool) -> str:
    """Return a query of the rows that are then stored: each as often as it is stored now, and its
    change more.

    With `full`, what is stored now does not count.
    """
    columns = ", ".join(f"b.{quoted(output.column.name)}" for output in block.outputs)
    copies = "b.__ms_net" if full else f"{stored_copies_sql(names)} + b.__ms_net"
    return f"SELECT b.part, {columns} FROM {changes} AS b CROSS JOIN LATERAL generate_series(1, {copies})"


def stored_copies_sql(names: BlockNames) -> str:
    """Return the number of stored copies of the row `b`."""
    return f"(SELECT count(*) FROM {names.materialized} AS k WHERE k.part = b.part)"
