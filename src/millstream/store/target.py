"""Build the SQL that applies the difference to a stream table's own table, in one statement.

First `rows` is filled with one line for each row that may change, and what to do with it:

    op   I insert   U update   D delete        tid   the ctid of the stored row
         NULL  nothing: the stored row is equal, or there is no row before and after
         ?     a row to delete does not exist: the stream table is wrong, and the refresh fails

Then one MERGE executes this plan, so that the user's triggers fire once, on real changes only, when
the table is complete. Rows are compared by their exact text.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from millstream.algebra.block import AggregateBlock, Block, Output
from millstream.algebra.types import Column, PgType
from millstream.postgres.composed import (
    Printed,
    aliased,
    all_of,
    listed,
    one_of,
    row_text,
    union_all,
)
from millstream.store.decode import consolidated_sql, decoded_rows
from millstream.store.names import ROW_ID, BlockNames, row_hash
from millstream.store.staging_columns import staged, unstaged

# A btree's entry has 2704 bytes at most, with its header.
_LONGEST_ENTRY = 2600
_LONG = {
    "text": sql.SQL("(md5({}))"),
    "varchar": sql.SQL("(md5({}::text))"),
    "bpchar": sql.SQL("(md5({}::text))"),
    "bytea": sql.SQL("(md5({}))"),
}


@dataclass(frozen=True)
class _StoredColumn:
    """A column of the target, and of the staging table `rows` under a name that no user's equals."""

    staged: str
    stored: str
    type: PgType | None = None
    """The type of the target's column if staging has another; None if it is the same."""

    def of(self, alias: str) -> sql.Identifier:
        """Return the staged column of this alias."""
        return sql.Identifier(alias, self.staged)

    def of_target(self, alias: str) -> sql.Identifier:
        """Return the target's column of this alias."""
        return sql.Identifier(alias, self.stored)

    def to_stage(self, value: sql.Composable) -> sql.Composable:
        """Return a value in the type of the staging table."""
        return staged(value, self.type) if self.type else value


def create_sql(block: Block, names: BlockNames, query: Printed) -> list[sql.Composed]:
    """Return the statements that create the table: the columns of the query, and its key or row id."""
    create = sql.SQL("CREATE TABLE {} AS {} WITH NO DATA").format(names.target, query)
    if block.key.kind != "row_id":
        return [create, index_sql(block, names)]
    add = sql.SQL("ALTER TABLE {} ADD COLUMN {} bytea NOT NULL PRIMARY KEY")
    return [create, add.format(names.target, sql.Identifier(ROW_ID))]


def index_sql(block: Block, names: BlockNames) -> sql.Composed:
    """Return the unique index that identifies rows."""
    if block.key.kind == "row_id":
        add = sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})")
        return add.format(names.target, sql.Identifier(ROW_ID))
    if block.key.kind == "single":
        return sql.SQL("CREATE UNIQUE INDEX ON {} ((true))").format(names.target)
    return _unique_index(block, names, listed(map(sql.Identifier, block.key.columns)))


def _unique_index(block: Block, names: BlockNames, entries: sql.Composable) -> sql.Composed:
    nulls = sql.SQL(" NULLS NOT DISTINCT" if block.key.nullable else "")
    return sql.SQL("CREATE UNIQUE INDEX ON {target} ({entries}){nulls}").format(
        target=names.target, entries=entries, nulls=nulls
    )


def long_keys_sql(block: Block, names: BlockNames) -> sql.Composed | None:
    """Return a query that finds a new key too long for a unique index; None if no key can be."""
    if block.key.kind != "columns" or not long_columns(block):
        return None
    size = sql.SQL("coalesce(pg_column_size({}), 0)")
    return sql.SQL(
        "SELECT EXISTS (SELECT FROM {rows} AS o WHERE o.op IN ('I', 'U') AND {size} > {longest})"
    ).format(
        rows=names.rows,
        size=sql.SQL(" + ").join(size.format(column.of("o")) for column in _key(block)),
        longest=_LONGEST_ENTRY,
    )


def long_columns(block: Block) -> dict[str, sql.Composed]:
    """Return the key columns with values of any length, with the expression that replaces each in a
    unique index.
    """
    bases = {output.column.name: output.column.type.base for output in block.outputs}
    return {
        name: _LONG[bases[name]].format(sql.Identifier(name))
        for name in block.key.columns
        if bases[name] in _LONG
    }


def unique_index_sql(block: Block, names: BlockNames) -> sql.Composed:
    """Return the query for schema and name of the unique index on the key."""
    return sql.SQL(
        "SELECT n.nspname, c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid "
        "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE i.indrelid = {target}::regclass "
        "AND i.indisunique AND i.indpred IS NULL AND ("
        "SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, place) "
        "JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum) = ARRAY[{columns}]"
    ).format(
        target=sql.Literal(names.target.as_string()),
        columns=listed(map(sql.Literal, block.key.columns)),
    )


def long_index_sql(block: Block, names: BlockNames) -> list[sql.Composed]:
    """Return the indexes for long keys: a unique one, and one for lookups; both accept values of
    any length.
    """
    long = long_columns(block)
    entries = [long.get(name, sql.Identifier(name)) for name in block.key.columns]
    lookup = sql.SQL("CREATE INDEX ON {} USING hash ({})").format(
        names.target, sql.Identifier(next(iter(long)))
    )
    return [_unique_index(block, names, listed(entries)), lookup]


def rows_table_sql(block: Block, names: BlockNames) -> sql.Composed:
    """Return the staging table of planned changes: the target's columns by position, under names of
    our own.
    """
    columns = [aliased(c.to_stage(c.of_target("t")), c.staged) for c in _columns(block)]
    return sql.SQL(
        "CREATE TEMPORARY TABLE IF NOT EXISTS {rows} AS "
        "SELECT NULL::text AS op, NULL::tid AS tid, {columns} FROM {target} AS t WITH NO DATA"
    ).format(rows=names.rows, columns=listed(columns), target=names.target)


def _columns(block: Block) -> list[_StoredColumn]:
    """Return the stored columns: those of the query, then the row id, if there is one."""
    outputs = enumerate(output.column for output in block.outputs)
    columns = [_StoredColumn(f"o{number}", c.name, _other_type(c)) for number, c in outputs]
    return [*columns, _StoredColumn("row_id", ROW_ID)] if block.key.kind == "row_id" else columns


def _other_type(column: Column) -> PgType | None:
    return column.type if column.type.is_user_defined else None


def _key(block: Block) -> list[_StoredColumn]:
    """Return the columns of the key."""
    by_name = {column.stored: column for column in _columns(block)}
    return [by_name[name] for name in block.key.columns]


def _staged_list(block: Block) -> sql.Composed:
    """Return the columns of new rows `n` in the types of staging tables."""
    return listed(column.to_stage(column.of("n")) for column in _columns(block))


def _planned(block: Block, names: BlockNames) -> sql.Composable:
    """Return the planned changes in the target's types, as a FROM item without an alias."""
    if not any(column.type for column in _columns(block)):
        return names.rows
    # Qualified, since it is resolved along the user's search_path.
    return sql.SQL("(SELECT op, tid, {values} FROM {rows} AS s)").format(
        values=listed(map(_unstaged, _columns(block))), rows=names.rows
    )


def _unstaged(column: _StoredColumn) -> sql.Composable:
    own = sql.Identifier(column.staged)
    return aliased(unstaged(own, column.type), column.staged) if column.type else own


def _outputs(block: Block) -> sql.Composed:
    """Return the final expressions under our names."""
    return listed(_numbered(n, Printed(output.expr)) for n, output in enumerate(block.outputs))


def _numbered(number: int, value: sql.Composable) -> sql.Composed:
    return aliased(value, f"o{number}")


def plan_sql(block: Block, names: BlockNames, *, full: bool) -> list[sql.Composed]:
    """Return the statements that fill `rows`."""
    if isinstance(block, AggregateBlock):
        statement = _matched(block, names, _group_rows(block, names))
    elif block.key.kind == "row_id":
        statement = _bag_full(block, names) if full else _bag(block, names)
    else:
        statement = _matched(block, names, _keyed_rows(block, names))
    return [statement, _vanished(names)] if full else [statement]


def counts_sql(names: BlockNames) -> sql.Composed:
    """Return a query of the number of planned changes of each kind."""
    return sql.SQL("SELECT op, count(*) FROM {} WHERE op IS NOT NULL GROUP BY op").format(
        names.rows
    )


def merge_sql(block: Block, names: BlockNames) -> sql.Composed:
    """Return the MERGE that executes the planned changes."""
    columns = _columns(block)
    assigned = sql.SQL("{} = {}")
    return sql.SQL(
        "MERGE INTO {target} AS t "
        "USING (SELECT * FROM {planned} AS p WHERE op IS NOT NULL) AS o "
        "ON t.ctid OPERATOR(pg_catalog.=) o.tid "
        "WHEN MATCHED AND o.op OPERATOR(pg_catalog.=) 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET {update} "
        "WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
    ).format(
        target=names.target,
        planned=_planned(block, names),
        update=listed(assigned.format(sql.Identifier(c.stored), c.of("o")) for c in columns),
        columns=listed(sql.Identifier(c.stored) for c in columns),
        values=listed(c.of("o") for c in columns),
    )


def insert_sql(block: Block, names: BlockNames) -> sql.Composed:
    """Return the INSERT that executes a plan without updates and deletes."""
    columns = _columns(block)
    return sql.SQL(
        "INSERT INTO {target} ({columns}) SELECT {values} FROM {planned} AS p WHERE op OPERATOR(pg_catalog.=) 'I'"
    ).format(
        target=names.target,
        columns=listed(sql.Identifier(c.stored) for c in columns),
        values=listed(sql.Identifier(c.staged) for c in columns),
        planned=_planned(block, names),
    )


def unwritten_sql(block: Block, names: BlockNames) -> sql.Composed:
    """Return a query that counts planned rows which are not in the table as planned."""
    missing = sql.SQL(
        "SELECT FROM {planned} AS o WHERE o.op IN ('I', 'U') AND ({rows}) AND NOT EXISTS ("
        "SELECT FROM {target} AS t WHERE ({same}) AND {stored} = {wanted})"
    )
    columns, planned = _columns(block), _planned(block, names)
    stored, wanted = (
        row_text(c.of_target("t") for c in columns),
        row_text(c.of("o") for c in columns),
    )
    parts = [
        missing.format(
            planned=planned, rows=rows, target=names.target, same=same, stored=stored, wanted=wanted
        )
        for rows, same in _found_by(block)
    ]
    return sql.SQL("SELECT count(*) FROM ({}) AS unwritten").format(union_all(parts))


_TRUE = sql.SQL("true")


def _found_by(block: Block) -> list[tuple[sql.Composable, sql.Composable]]:
    """Return how to find the stored row of a planned one: (which planned rows, condition).

    Rows with a NULL in the key are separate, as in `_matches`.
    """
    if block.key.kind == "single":
        return [(_TRUE, _TRUE)]
    if block.key.kind == "row_id":
        return [(_TRUE, _equal(sql.Identifier("t", ROW_ID), sql.Identifier("o", "row_id")))]
    pairs = [(column.of_target("t"), column.of("o")) for column in _key(block)]
    some_null = _some_null([planned for _, planned in pairs])
    equal = all_of(_equal(*pair) for pair in pairs)
    same = all_of(sql.SQL("{} IS NOT DISTINCT FROM {}").format(*pair) for pair in pairs)
    return [(sql.SQL("NOT ({})").format(some_null), equal), (some_null, same)]


def _equal(one: sql.Composable, other: sql.Composable) -> sql.Composed:
    return sql.SQL("{} = {}").format(one, other)


def _some_null(columns: list[sql.Identifier]) -> sql.Composed:
    # A row of NULLs, of a composite type, IS NULL too; it is not distinct from itself only.
    return one_of(sql.SQL("{} IS NOT DISTINCT FROM NULL").format(column) for column in columns)


# -- groups and keyed rows -------------------------------------------------------------------


def _group_rows(block: AggregateBlock, names: BlockNames) -> sql.Composed:
    """Return a query of the touched groups: key, whether the group is in the result, and outputs."""
    having = sql.SQL(" AND ({})").format(Printed(block.having)) if block.having else sql.SQL("")
    outputs = [_numbered(n, _guarded(block, output)) for n, output in enumerate(block.outputs)]
    own = [sql.SQL("uuid_send(g.id) AS row_id")] if block.key.kind == "row_id" else []
    return sql.SQL(
        "SELECT (s.id IS NOT NULL{having}) IS TRUE AS keep, {columns} "
        "FROM {groups} AS g LEFT JOIN {state} AS s ON s.id = g.id"
    ).format(
        having=having,
        columns=listed([*_group_keys(block), *outputs, *own]),
        groups=names.groups,
        state=names.state,
    )


def _group_keys(block: AggregateBlock) -> list[sql.Composed]:
    """Return the key columns, from the touched group: a group that is gone has no state left."""
    types = {key.name: key.type for key in block.head.keys}
    outputs = {output.column.name: output for output in block.outputs}
    keys = []
    for column in _key(block):
        output = outputs[column.stored]
        assert output.key is not None
        value = unstaged(sql.Identifier("g", output.key), types[output.key])
        typed = sql.SQL("({})::{}").format(value, Printed(output.column.type.name))
        keys.append(aliased(typed, f"key_{column.staged}"))
    return keys


def _guarded(block: Block, output: Output) -> sql.Composable:
    """Return a final expression that is not computed for what HAVING leaves out: it may guard a
    division.
    """
    value = Printed(output.expr)
    if not block.having:
        return value
    return sql.SQL("CASE WHEN {} THEN {} END").format(Printed(block.having), value)


def _keyed_rows(block: Block, names: BlockNames) -> sql.Composed:
    """Return a query of the new row of each key, or that there is none."""
    key = _key(block)
    return sql.SQL(
        "SELECT DISTINCT ON ({keys}) n.net > 0 AS keep, {shown}, n.* "
        "FROM (SELECT {outputs}, d.__net AS net FROM {rows}) AS n ORDER BY {keys}, n.net DESC"
    ).format(
        keys=listed(column.of("n") for column in key),
        shown=listed(aliased(column.of("n"), f"key_{column.staged}") for column in key),
        outputs=_outputs(block),
        rows=decoded_rows(block, names),
    )


def _matched(block: Block, names: BlockNames, new: sql.Composable) -> sql.Composed:
    """Return a query that joins new rows to their stored rows and decides: insert, update or
    delete.
    """
    columns = _columns(block)
    select = sql.SQL(
        "SELECT CASE WHEN t.tid IS NULL THEN CASE WHEN n.keep THEN 'I' END WHEN NOT n.keep THEN 'D' "
        "WHEN {stored} IS DISTINCT FROM {wanted} THEN 'U' END, t.tid, {columns} "
        "FROM new AS n LEFT JOIN stored AS t ON "
    ).format(
        stored=row_text(c.of("t") for c in columns),
        wanted=row_text(c.of("n") for c in columns),
        columns=_staged_list(block),
    )
    return sql.SQL(
        "INSERT INTO {rows} WITH new AS MATERIALIZED ({new}), "
        "stored AS NOT MATERIALIZED (SELECT ctid AS tid, {stored} FROM {target}) {decided}"
    ).format(
        rows=names.rows,
        new=new,
        stored=listed(aliased(sql.Identifier(c.stored), c.staged) for c in columns),
        target=names.target,
        decided=union_all(select + match for match in _matches(block)),
    )


def _matches(block: Block) -> list[sql.Composable]:
    """Return how new rows join stored ones: a condition, and which new rows.

    Rows with a NULL in the key are joined separately: the others then join by `=` only, for which a
    hash join works.
    """
    if block.key.kind == "single":
        return [_TRUE]
    if block.key.kind == "row_id":
        return [sql.SQL("t.row_id = n.row_id")]
    pairs = [(c.of("t"), sql.Identifier("n", f"key_{c.staged}")) for c in _key(block)]
    equal = all_of(_equal(*pair) for pair in pairs)
    if not block.key.nullable:
        return [equal]
    some_null = _some_null([new for _, new in pairs])
    same = all_of(
        sql.SQL(
            "({0} = {1} OR ({0} IS NOT DISTINCT FROM NULL AND {1} IS NOT DISTINCT FROM NULL))"
        ).format(*pair)
        for pair in pairs
    )
    return [
        sql.SQL("{} WHERE NOT ({})").format(equal, some_null),
        sql.SQL("{} WHERE {}").format(same, some_null),
    ]


def _vanished(names: BlockNames) -> sql.Composed:
    """Return a query of the stored rows that a full read did not find, to be deleted, whoever wrote
    them.
    """
    return sql.SQL(
        "INSERT INTO {rows} (op, tid) SELECT 'D', t.ctid FROM {target} AS t "
        "WHERE NOT EXISTS (SELECT FROM {rows} AS o WHERE o.tid = t.ctid)"
    ).format(rows=names.rows, target=names.target)


# -- bags: equal rows are told apart by an ordinal -------------------------------------------


def _bag_rows(block: Block, names: BlockNames) -> sql.Composed:
    """Return a query of each distinct row: its hash and the change of its number of copies."""
    hashed = sql.SQL(
        "SELECT {hash} AS h, r.* FROM (SELECT {outputs}, d.__net AS net FROM {rows}) AS r"
    ).format(
        hash=row_hash([sql.Identifier("r", f"o{n}") for n in range(len(block.outputs))]),
        outputs=_outputs(block),
        rows=decoded_rows(block, names),
    )
    return consolidated_sql(hashed, sql.SQL("x.h"), "net")


def _bag_columns(block: Block) -> sql.Composed:
    """Return the columns of new rows `n`, but for the row id, in the types of staging tables."""
    own = [column for column in _columns(block) if column.stored != ROW_ID]
    return listed(column.to_stage(column.of("n")) for column in own)


def _bag(block: Block, names: BlockNames) -> sql.Composed:
    """Return the rows to insert and delete: new copies get the next ordinals, deleted ones are
    those with the last.
    """
    have = sql.SQL(
        "SELECT count(*) AS n FROM {target} AS t "
        "WHERE t.{row_id} >= n.h AND t.{row_id} <= n.h || '\\xffffffff'::bytea"
    ).format(target=names.target, row_id=sql.Identifier(ROW_ID))
    return sql.SQL(
        "INSERT INTO {rows} WITH new AS MATERIALIZED ({new}) "
        "SELECT CASE WHEN n.total > 0 THEN 'I' WHEN t.ctid IS NULL THEN '?' ELSE 'D' END, t.ctid, "
        "{columns}, n.h || int4send(i.ordinal) FROM new AS n CROSS JOIN LATERAL ({have}) AS c "
        "CROSS JOIN LATERAL generate_series("
        "LEAST(c.n, c.n + n.total)::int4, GREATEST(c.n, c.n + n.total)::int4 - 1) AS i (ordinal) "
        "LEFT JOIN {target} AS t ON t.{row_id} = n.h || int4send(i.ordinal)"
    ).format(
        rows=names.rows,
        new=_bag_rows(block, names),
        columns=_bag_columns(block),
        have=have,
        target=names.target,
        row_id=sql.Identifier(ROW_ID),
    )


def _bag_full(block: Block, names: BlockNames) -> sql.Composed:
    """Return a query of all row ids of the new version; those that are not stored are inserted."""
    return sql.SQL(
        "INSERT INTO {rows} WITH new AS MATERIALIZED ({new}) "
        "SELECT CASE WHEN t.ctid IS NULL THEN 'I' END, t.ctid, {columns}, n.h || int4send(i.ordinal) "
        "FROM new AS n CROSS JOIN LATERAL generate_series(0, n.total::int4 - 1) AS i (ordinal) "
        "LEFT JOIN {target} AS t ON t.{row_id} = n.h || int4send(i.ordinal)"
    ).format(
        rows=names.rows,
        new=_bag_rows(block, names),
        columns=_bag_columns(block),
        target=names.target,
        row_id=sql.Identifier(ROW_ID),
    )
