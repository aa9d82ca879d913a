"""Build the SQL that applies the difference to a stream table's own table, in one statement.

First `rows` is filled with one line for each row that may change, and what to do with it:

    op   I insert   U update   D delete        tid   the ctid of the stored row
         NULL  nothing: the stored row is equal, or there is none and shall be none
         ?     a row to delete does not exist: the stream table is wrong, and the refresh fails

Then one MERGE executes this plan, so that the user's triggers fire once, on real changes only, when
the table is complete. Rows are compared by their exact text.
"""

from __future__ import annotations

from millstream.algebra.block import AggregateBlock, Block
from millstream.algebra.table import literal, quoted
from millstream.algebra.text_io import staged_sql, unstaged_sql
from millstream.algebra.types import PgType
from millstream.store.decode import consolidated_sql, decoded_rows
from millstream.store.names import ROW_ID, BlockNames, row_hash

# A btree's entry has 2704 bytes at most, with its header.
_LONGEST_ENTRY = 2600
_LONG = {"text": "", "varchar": "::text", "bpchar": "::text", "bytea": ""}


def create_sql(block: Block, names: BlockNames, query: str) -> list[str]:
    """Return the statements that create the table: the columns of the query, and its key or row id."""
    statements = [f"CREATE TABLE {names.target} AS {query} WITH NO DATA"]
    if block.key.kind == "row_id":
        return [
            *statements,
            f"ALTER TABLE {names.target} ADD COLUMN {ROW_ID} bytea NOT NULL PRIMARY KEY",
        ]
    return [*statements, index_sql(block, names)]


def index_sql(block: Block, names: BlockNames) -> str:
    """Return the unique index that identifies rows."""
    key = block.key
    if key.kind == "row_id":
        return f"ALTER TABLE {names.target} ADD PRIMARY KEY ({ROW_ID})"
    if key.kind == "single":
        return f"CREATE UNIQUE INDEX ON {names.target} ((true))"
    columns = ", ".join(map(quoted, key.columns))
    nulls = " NULLS NOT DISTINCT" if key.nullable else ""
    return f"CREATE UNIQUE INDEX ON {names.target} ({columns}){nulls}"


def long_keys_sql(block: Block, names: BlockNames) -> str | None:
    """Return a query that finds a new key too long for a unique index; None if no key can be."""
    if block.key.kind != "columns" or not long_columns(block):
        return None
    size = " + ".join(f"coalesce(pg_column_size(o.{ours}), 0)" for ours, _ in _key(block))
    return f"SELECT EXISTS (SELECT FROM {names.rows} AS o WHERE o.op IN ('I', 'U') AND {size} > {_LONGEST_ENTRY})"


def long_columns(block: Block) -> dict[str, str]:
    """Return the key columns with values of any length, with the expression that replaces each in a
    unique index.
    """
    types = {output.column.name: output.column.type for output in block.outputs}
    found = {
        name: _LONG[types[name].base] for name in block.key.columns if types[name].base in _LONG
    }
    return {name: f"(md5({quoted(name)}{cast}))" for name, cast in found.items()}


def unique_index_sql(block: Block, names: BlockNames) -> str:
    """Return the name of the unique index on the key."""
    columns = ", ".join(map(literal, block.key.columns))
    own = (
        "SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, place) "
        "JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
    )
    return (
        "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid "
        f"JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE i.indrelid = {literal(names.target)}::regclass "
        f"AND i.indisunique AND i.indpred IS NULL AND ({own}) = ARRAY[{columns}]"
    )


def long_index_sql(block: Block, names: BlockNames) -> list[str]:
    """Return the indexes for long keys: a unique one, and one for lookups; both accept values of
    any length.
    """
    long = long_columns(block)
    listed = ", ".join(long.get(name, quoted(name)) for name in block.key.columns)
    nulls = " NULLS NOT DISTINCT" if block.key.nullable else ""
    return [
        f"CREATE UNIQUE INDEX ON {names.target} ({listed}){nulls}",
        f"CREATE INDEX ON {names.target} USING hash ({quoted(next(iter(long)))})",
    ]


def rows_table_sql(block: Block, names: BlockNames) -> str:
    """Return the staging table of planned changes: the target's columns by position, under names of
    our own.
    """
    types = _types(block)
    listed = ", ".join(
        f"{_staged(f't.{theirs}', types.get(ours))} AS {ours}" for ours, theirs in _columns(block)
    )
    return (
        f"CREATE TEMPORARY TABLE IF NOT EXISTS {names.rows.removeprefix('pg_temp.')} "
        f"AS SELECT NULL::text AS op, NULL::tid AS tid, {listed} FROM {names.target} AS t WITH NO DATA"
    )


def _columns(block: Block) -> list[tuple[str, str]]:
    """Return our name and the target's name of each stored column. Ours cannot equal a user's."""
    columns = [
        (f"o{number}", quoted(output.column.name)) for number, output in enumerate(block.outputs)
    ]
    return [*columns, ("row_id", ROW_ID)] if block.key.kind == "row_id" else columns


def _types(block: Block) -> dict[str, PgType]:
    """Return, by our name, the types of the columns that have another type in staging."""
    typed = {f"o{number}": output.column.type for number, output in enumerate(block.outputs)}
    return {ours: type_ for ours, type_ in typed.items() if type_.is_user_defined}


def _staged(value: str, type_: PgType | None) -> str:
    return staged_sql(value, type_) if type_ else value


def _listed(block: Block) -> str:
    """Return the columns of new rows `n` in the types of staging tables."""
    types = _types(block)
    return ", ".join(_staged(f"n.{ours}", types.get(ours)) for ours in _ours(block))


def _planned(block: Block, names: BlockNames) -> str:
    """Return the planned changes in the target's types, as a FROM item without an alias."""
    types = _types(block)
    if not types:
        return names.rows
    # Qualified: it is read along the user's path.
    values = [
        f"{unstaged_sql(ours, types[ours])} AS {ours}" if ours in types else ours
        for ours in _ours(block)
    ]
    return f"(SELECT op, tid, {', '.join(values)} FROM {names.rows} AS s)"


def _ours(block: Block) -> list[str]:
    return [ours for ours, _ in _columns(block)]


def _key(block: Block) -> list[tuple[str, str]]:
    """Return our name and the target's name of each key column."""
    names = {theirs: ours for ours, theirs in _columns(block)}
    return [(names[quoted(name)], quoted(name)) for name in block.key.columns]


def _outputs(block: Block) -> list[str]:
    """Return the final expressions under our names."""
    return [f"{output.expr} AS o{number}" for number, output in enumerate(block.outputs)]


def plan_sql(block: Block, names: BlockNames, *, full: bool) -> list[str]:
    """Return the statements that fill `rows`."""
    if isinstance(block, AggregateBlock):
        statement = _matched(block, names, _group_rows(block, names))
    elif block.key.kind == "row_id":
        statement = _bag_full(block, names) if full else _bag(block, names)
    else:
        statement = _matched(block, names, _keyed_rows(block, names))
    return [statement, _vanished(names)] if full else [statement]


def merge_sql(block: Block, names: BlockNames) -> str:
    """Return the MERGE that executes the planned changes."""
    columns = _columns(block)
    update = ", ".join(f"{theirs} = o.{ours}" for ours, theirs in columns)
    listed = ", ".join(theirs for _, theirs in columns)
    values = ", ".join(f"o.{ours}" for ours, _ in columns)
    return (
        f"MERGE INTO {names.target} AS t "
        f"USING (SELECT * FROM {_planned(block, names)} AS p WHERE op IS NOT NULL) AS o "
        f"ON t.ctid OPERATOR(pg_catalog.=) o.tid "
        f"WHEN MATCHED AND o.op OPERATOR(pg_catalog.=) 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET {update} "
        f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})"
    )


def insert_sql(block: Block, names: BlockNames) -> str:
    """Return the INSERT that executes a plan without updates and deletes."""
    listed = ", ".join(theirs for _, theirs in _columns(block))
    chosen = f"SELECT {', '.join(_ours(block))} FROM {_planned(block, names)} AS p WHERE op OPERATOR(pg_catalog.=) 'I'"
    return f"INSERT INTO {names.target} ({listed}) {chosen}"


def unwritten_sql(block: Block, names: BlockNames) -> str:
    """Return a query that counts planned rows which are not in the table as planned."""
    ours = ", ".join(f"o.{mine}" for mine, _ in _columns(block))
    theirs = ", ".join(f"t.{stored}" for _, stored in _columns(block))
    parts = [
        f"SELECT FROM {_planned(block, names)} AS o WHERE o.op IN ('I', 'U') AND ({rows}) AND NOT EXISTS ("
        f"SELECT FROM {names.target} AS t WHERE ({same}) AND ROW({theirs})::text = ROW({ours})::text)"
        for rows, same in _found_by(block)
    ]
    return f"SELECT count(*) FROM ({' UNION ALL '.join(parts)}) AS unwritten"


def _found_by(block: Block) -> list[tuple[str, str]]:
    """Return how to find the stored row of a planned one: (which planned rows, condition).

    Rows with a NULL in the key are separate, as in `_matches`.
    """
    if block.key.kind == "single":
        return [("true", "true")]
    if block.key.kind == "row_id":
        return [("true", f"t.{ROW_ID} = o.row_id")]
    pairs = [(f"t.{stored}", f"o.{mine}") for mine, stored in _key(block)]
    some_null = " OR ".join(f"{mine} IS NULL" for _, mine in pairs)
    equal = " AND ".join(f"{stored} = {mine}" for stored, mine in pairs)
    same = " AND ".join(f"{stored} IS NOT DISTINCT FROM {mine}" for stored, mine in pairs)
    return [(f"NOT ({some_null})", equal), (some_null, same)]


# -- groups and keyed rows -------------------------------------------------------------------


def _group_rows(block: AggregateBlock, names: BlockNames) -> str:
    """Return a query of the touched groups: key, whether the group is in the result, and outputs."""
    having = f" AND ({block.having})" if block.having else ""
    # A group that is gone has no state left; its key columns come from the touched group itself.
    stored = {key.name: unstaged_sql(f"g.{quoted(key.name)}", key.type) for key in block.head.keys}
    keys = {
        quoted(o.column.name): f"({stored[o.key]})::{o.column.type.name}"
        for o in block.outputs
        if o.key
    }
    key = [f"{keys[theirs]} AS key_{ours}" for ours, theirs in _key(block)]
    own = ["uuid_send(g.id) AS row_id"] if block.key.kind == "row_id" else []
    outputs = _outputs(block)
    if block.having:
        # What HAVING leaves out must not be computed: it may guard a division.
        outputs = [
            f"CASE WHEN {block.having} THEN {o.expr} END AS o{n}"
            for n, o in enumerate(block.outputs)
        ]
    return (
        f"SELECT (s.id IS NOT NULL{having}) IS TRUE AS keep, {', '.join([*key, *outputs, *own])} "
        f"FROM {names.groups} AS g LEFT JOIN {names.state} AS s ON s.id = g.id"
    )


def _keyed_rows(block: Block, names: BlockNames) -> str:
    """Return a query of the new row of each key, or that there is none."""
    keys = [f"n.{ours}" for ours, _ in _key(block)]
    shown = ", ".join(f"n.{ours} AS key_{ours}" for ours, _ in _key(block))
    return (
        f"SELECT DISTINCT ON ({', '.join(keys)}) n.net > 0 AS keep, {shown}, n.* "
        f"FROM (SELECT {', '.join(_outputs(block))}, d.__net AS net FROM {decoded_rows(block, names)}) AS n "
        f"ORDER BY {', '.join(keys)}, n.net DESC"
    )


def _matched(block: Block, names: BlockNames, new: str) -> str:
    """Return a query that joins new rows to their stored rows and decides: insert, update or
    delete.
    """
    ours = _ours(block)
    texts = [
        f"ROW({', '.join(f'{alias}.{column}' for column in ours)})::text" for alias in ("t", "n")
    ]
    op = (
        "CASE WHEN t.tid IS NULL THEN CASE WHEN n.keep THEN 'I' END WHEN NOT n.keep THEN 'D' "
        f"WHEN {texts[0]} IS DISTINCT FROM {texts[1]} THEN 'U' END"
    )
    select = f"SELECT {op}, t.tid, {_listed(block)} FROM new AS n LEFT JOIN stored AS t"
    parts = [
        f"{select} ON {on}{f' WHERE {where}' if where else ''}" for on, where in _matches(block)
    ]
    stored = ", ".join(f"{theirs} AS {mine}" for mine, theirs in _columns(block))
    return (
        f"INSERT INTO {names.rows} WITH new AS MATERIALIZED ({new}), "
        f"stored AS NOT MATERIALIZED (SELECT ctid AS tid, {stored} FROM {names.target}) {' UNION ALL '.join(parts)}"
    )


def _matches(block: Block) -> list[tuple[str, str]]:
    """Return how new rows join stored ones: (condition, which new rows).

    Rows with a NULL in the key are joined separately: the others then join by `=` only, for which a
    hash join works.
    """
    if block.key.kind == "single":
        return [("true", "")]
    if block.key.kind == "row_id":
        return [("t.row_id = n.row_id", "")]
    pairs = [(f"t.{ours}", f"n.key_{ours}") for ours, _ in _key(block)]
    equal = " AND ".join(f"{stored} = {new}" for stored, new in pairs)
    if not block.key.nullable:
        return [(equal, "")]
    some_null = " OR ".join(f"{new} IS NULL" for _, new in pairs)
    same = " AND ".join(
        f"({stored} = {new} OR ({stored} IS NULL AND {new} IS NULL))" for stored, new in pairs
    )
    return [(equal, f"NOT ({some_null})"), (same, some_null)]


def _vanished(names: BlockNames) -> str:
    """Return a query of the stored rows that a full read did not find, to be deleted, whoever wrote
    them.
    """
    return (
        f"INSERT INTO {names.rows} (op, tid) SELECT 'D', t.ctid FROM {names.target} AS t "
        f"WHERE NOT EXISTS (SELECT FROM {names.rows} AS o WHERE o.tid = t.ctid)"
    )


# -- bags: equal rows are told apart by an ordinal -------------------------------------------


def _bag_rows(block: Block, names: BlockNames) -> str:
    """Return a query of each distinct row: its hash and the change of its number of copies."""
    outputs = [f"r.o{number}" for number in range(len(block.outputs))]
    hashed = (
        f"SELECT {row_hash(outputs)} AS h, r.* "
        f"FROM (SELECT {', '.join(_outputs(block))}, d.__net AS net FROM {decoded_rows(block, names)}) AS r"
    )
    return consolidated_sql(hashed, "x.h", "net")


def _bag_columns(block: Block) -> str:
    types = _types(block)
    return ", ".join(
        _staged(f"n.o{number}", types.get(f"o{number}")) for number in range(len(block.outputs))
    )


def _bag(block: Block, names: BlockNames) -> str:
    """Return the rows to insert and delete: new copies get the next ordinals, deleted ones are
    those with the last.
    """
    listed = _bag_columns(block)
    have = (
        f"SELECT count(*) AS n FROM {names.target} AS t "
        f"WHERE t.{ROW_ID} >= n.h AND t.{ROW_ID} <= n.h || '\\xffffffff'::bytea"
    )
    ordinals = "generate_series(LEAST(c.n, c.n + n.total)::int4, GREATEST(c.n, c.n + n.total)::int4 - 1) AS i (ordinal)"
    return (
        f"INSERT INTO {names.rows} WITH new AS MATERIALIZED ({_bag_rows(block, names)}) "
        f"SELECT CASE WHEN n.total > 0 THEN 'I' WHEN t.ctid IS NULL THEN '?' ELSE 'D' END, t.ctid, "
        f"{listed}, n.h || int4send(i.ordinal) "
        f"FROM new AS n CROSS JOIN LATERAL ({have}) AS c CROSS JOIN LATERAL {ordinals} "
        f"LEFT JOIN {names.target} AS t ON t.{ROW_ID} = n.h || int4send(i.ordinal)"
    )


def _bag_full(block: Block, names: BlockNames) -> str:
    """Return a query of all row ids of the new version; those that are not stored are inserted."""
    listed = _bag_columns(block)
    return (
        f"INSERT INTO {names.rows} WITH new AS MATERIALIZED ({_bag_rows(block, names)}) "
        f"SELECT CASE WHEN t.ctid IS NULL THEN 'I' END, t.ctid, {listed}, n.h || int4send(i.ordinal) "
        f"FROM new AS n CROSS JOIN LATERAL generate_series(0, n.total::int4 - 1) AS i (ordinal) "
        f"LEFT JOIN {names.target} AS t ON t.{ROW_ID} = n.h || int4send(i.ordinal)"
    )
