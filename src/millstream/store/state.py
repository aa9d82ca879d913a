"""Build the SQL that maintains the state of an aggregate's groups.

    delta (as sent by Spark)  ->  groups (decoded, with an id)  ->  MERGE into the state

A group's id is a 128-bit hash of the text of its keys, so NULL keys match and one index is enough.
A row of `groups` either adds to the state or, if `absolute`, replaces it; a group without rows is
deleted.

    SELECT region, count(*), max(amount) ... GROUP BY region      the amount of one order, 10, becomes 12

                        rows    not NULL    maximum
    state     north     n0 41   c1 41       x2 10
    groups    north     n0 0    c1 0        x2_in 12, x2_out 10
    state     north     n0 41   c1 41       x2 12

For an extreme, `groups` has the best of the inserted values (`_in`) and of the deleted ones
(`_out`). If the stored extreme was deleted and no inserted value is as good, the group is `lost`:
it is evaluated again over all its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql
from sqlglot import exp

from millstream.algebra.block import (
    Accumulator,
    AggregateHead,
    Block,
    HolisticAggregate,
    Input,
    MaterializedBlock,
)
from millstream.algebra.expr import Expr, Ref, transform
from millstream.algebra.relation import Order, Project
from millstream.algebra.table import ROW
from millstream.algebra.types import PgType
from millstream.large_stack import on_large_stack
from millstream.postgres.composed import (
    Printed,
    aliased,
    in_parentheses,
    listed,
    one_of,
    row_text,
)
from millstream.store.names import PART, BlockNames, from_item, row_hash
from millstream.store.staging_columns import (
    columns_of,
    decoded,
    received,
    staged,
    staged_key,
    unstaged,
)


def create_sql(block: Block, head: AggregateHead, names: BlockNames) -> list[sql.Composed]:
    """Return the statements that create the state table, with types and collations of the query's
    expressions.
    """
    own = [*(key.name for key in head.keys), *(one.column for one in head.extremes if one.column)]
    columns = [aliased(_typed(sql.Identifier("b", k.name), k.type), k.name) for k in head.keys]
    columns += [aliased(_initial(one), one.name) for one in head.accumulators]
    columns += [aliased(_of_nothing(one, block, head, names), one.name) for one in head.holistic]
    create = sql.SQL(
        "CREATE TABLE {state} AS SELECT NULL::uuid AS id, {columns} FROM ({source}) AS b"
    ).format(
        state=names.state,
        columns=listed(columns),
        source=empty_select(block, list(dict.fromkeys(own)), names),
    )
    least = sql.SQL("> 0" if head.keys else ">= 0")
    constrain = sql.SQL(
        "ALTER TABLE {state} ADD PRIMARY KEY (id), ADD CONSTRAINT rows_counted CHECK (n0 {least})"
    ).format(state=names.state, least=least)
    return [create, constrain, *([] if head.keys else [_only_row(block, head, names)])]


def _typed(value: sql.Composable, type_: PgType) -> sql.Composed:
    return sql.SQL("{}::{}").format(value, Printed(type_.name))


@on_large_stack
def empty_select(block: Block, columns: Sequence[str], names: BlockNames) -> sql.Composed:
    """Return an empty SELECT of the body's columns as PostgreSQL expressions, which have the right
    collations.
    """
    branch, types = block.branches[0], {column.name: column.type for column in block.columns}
    assert isinstance(branch.body, Project)
    leaves = {Ref(one.name, leaf.name): leaf.expr for one in branch.inputs for leaf in one.leaves}
    # All other columns of the body are marks of mark joins, which are no columns of tables.
    marks = {
        ref: Expr("CAST(NULL AS BOOLEAN)")
        for output in branch.body.outputs
        for ref in output.expr.refs
    }
    values: dict[str, sql.Composable] = {
        output.name: Printed(output.expr.substitute({**marks, **leaves}).sql)
        for output in branch.body.outputs
        if types[output.name].collation != "none"
    }
    values |= {name: _null(type_) for name, type_ in types.items() if type_.collation == "none"}
    tables = [from_item(one.scan, names.source(one.scan.table)) for one in branch.inputs]
    return sql.SQL("SELECT {columns} FROM {tables} WHERE false").format(
        columns=listed([aliased(values[name], name) for name in columns] or [sql.SQL("1")]),
        tables=listed(tables),
    )


def _null(type_: PgType) -> sql.Composed:
    return sql.SQL("CAST(NULL AS {})").format(Printed(type_.name))


def _initial(one: Accumulator) -> sql.Composed:
    if one.strategy == "extreme":
        assert one.column is not None
        return _typed(sql.Identifier("b", one.column), one.type)
    return _typed(sql.SQL("0"), one.type)


def _of_nothing(
    one: HolisticAggregate, block: Block, head: AggregateHead, names: BlockNames
) -> sql.Composed:
    """Return a holistic aggregate over no rows, which has the right type and collation."""
    rows = empty_select(block, [c.name for c in head.row_columns], names)
    return sql.SQL("(SELECT {} FROM ({}) AS r)").format(Printed(one.expr), rows)


def _only_row(block: Block, head: AggregateHead, names: BlockNames) -> sql.Composed:
    """Return the statement that inserts the only group of an aggregate without keys."""
    values = [id_sql(head, "x"), *(_of_no_rows(one) for one in head.accumulators)]
    values += [_of_nothing(one, block, head, names) for one in head.holistic]
    return sql.SQL("INSERT INTO {} VALUES ({})").format(names.state, listed(values))


def _of_no_rows(one: Accumulator) -> sql.Composable:
    """Return the value of an accumulator over no rows."""
    return sql.SQL("NULL") if one.strategy == "extreme" else sql.SQL("0")


def id_sql(head: AggregateHead, alias: str) -> sql.Composable:
    """Return the expression for a group's id."""
    if not head.keys:
        return sql.SQL("'00000000-0000-0000-0000-000000000000'::uuid")
    return row_id([sql.Identifier(alias, key.name) for key in head.keys])


def row_id(columns: Sequence[sql.Composable]) -> sql.Composed:
    """Return the expression for the hash of a row as a uuid."""
    return sql.SQL("encode({}, 'hex')::uuid").format(row_hash(columns))


def groups_table_sql(head: AggregateHead, names: BlockNames) -> sql.Composed:
    """Return the staging table of touched groups: the change of their state, or the new state."""
    columns: list[sql.Composable] = [sql.Identifier("id")]
    columns += [aliased(staged(sql.Identifier(k.name), k.type), k.name) for k in head.keys]
    columns.append(sql.SQL("false AS absolute"))
    for one, name in head.state_columns:
        stored = sql.Identifier(one.name)
        columns.append(stored if name == one.name else aliased(staged(stored, one.type), name))
    return sql.SQL(
        "CREATE TEMPORARY TABLE IF NOT EXISTS {groups} AS SELECT {columns} FROM {state} WITH NO DATA"
    ).format(groups=names.groups, columns=listed(columns), state=names.state)


def decode_sql(head: AggregateHead, names: BlockNames, *, absolute: bool) -> sql.Composed:
    """Return the statement that fills `groups` from the rows that Spark sent."""
    values = [aliased(_decoded(one, name, names), name) for one, name in head.state_columns]
    sent = sql.SQL("SELECT {columns} FROM {delta} AS d").format(
        columns=listed([*_received_keys(head), *values]), delta=names.delta
    )
    chosen = [
        id_sql(head, "x"),
        *(sql.Identifier("x", key.name) for key in head.keys),
        sql.Literal(absolute),
        *(sql.Identifier("x", name) for _, name in head.state_columns),
    ]
    return sql.SQL("INSERT INTO {groups} ({filled}) SELECT {chosen} FROM ({sent}) AS x").format(
        groups=names.groups, filled=_filled(head), chosen=listed(chosen), sent=sent
    )


def _received_keys(head: AggregateHead) -> list[sql.Composed]:
    """Return the sent keys in the types of `groups`.

    Their text, and so the group's id, is that of the values.
    """
    return [
        aliased(received(sql.Identifier("d", key.name), key.wire, key.type), key.name)
        for key in head.keys
    ]


def _filled(head: AggregateHead) -> sql.Composed:
    """Return the columns of `groups`."""
    keys = [key.name for key in head.keys]
    own = ["id", *keys, "absolute", *(name for _, name in head.state_columns)]
    return listed(map(sql.Identifier, own))


def _decoded(one: Accumulator, name: str, names: BlockNames) -> sql.Composable:
    assert one.wire is not None
    sent = sql.Identifier("d", name)
    if one.strategy != "extreme" or one.order is not None:
        return received(sent, one.wire, one.type)
    # PostgreSQL picks the best of the candidates, by its own order: the collation is the state's.
    best = sql.SQL(
        "(SELECT {best}({column}) FROM (SELECT {stored} FROM {state} WHERE false UNION ALL "
        "SELECT {value} FROM jsonb_array_elements_text({sent}::jsonb) AS v) AS c)"
    ).format(
        best=sql.SQL("min" if one.function == "min" else "max"),
        column=sql.Identifier("c", one.name),
        stored=sql.Identifier(one.name),
        state=names.state,
        value=decoded(sql.Identifier("v"), one.wire, one.type),
        sent=sent,
    )
    return staged(best, one.type)


def lost_sql(head: AggregateHead, names: BlockNames) -> sql.Composed:
    """Return a query of the wire keys of the groups that must be recomputed.

    These are all groups with rows if something is always recomputed; otherwise those whose stored
    extreme was deleted and not replaced by an inserted value.
    """
    lost = one_of(_lost(one, head) for one in head.extremes)
    return sql.SQL(
        "SELECT {keys}, 1 FROM {groups} AS g LEFT JOIN {state} AS s ON s.id = g.id "
        "WHERE coalesce(s.n0, 0) + g.n0 > 0 AND ({lost})"
    ).format(
        keys=listed(sent_keys(head)),
        groups=names.groups,
        state=names.state,
        lost=sql.SQL("true") if head.recomputed else lost,
    )


def sent_keys(head: AggregateHead) -> list[sql.Composable]:
    """Return the keys of `groups` in their wire form; a constant if there are none."""
    keys = [staged_key(sql.Identifier("g", key.name), key.wire, key.type) for key in head.keys]
    return keys or [sql.SQL("1")]


def _lost(one: Accumulator, head: AggregateHead) -> sql.Composed:
    came = sql.Identifier("g", f"{one.name}_in")
    went = sql.Identifier("g", f"{one.name}_out")
    is_min = one.function == "min"
    noticed = sql.SQL(" AND {} > {}").format(sql.Identifier("s", one.name), one.level)
    present = _present(one, head)
    return sql.SQL(
        "({stored_present} + {present} > 0 AND {gone} {reached} {stored}"
        " AND ({came} IS NULL OR {incoming} {better} {stored}){noticed})"
    ).format(
        stored_present=sql.Identifier("s", present),
        present=sql.Identifier("g", present),
        gone=unstaged(went, one.type),
        reached=sql.SQL("<=" if is_min else ">="),
        stored=sql.Identifier("s", one.name),
        came=came,
        incoming=unstaged(came, one.type),
        better=sql.SQL(">" if is_min else "<"),
        noticed=noticed if one.level is not None else sql.SQL(""),
    )


def _present(one: Accumulator, head: AggregateHead) -> str:
    """Return the name of the accumulator that counts the values of an extreme."""
    return next(
        a.name for a in head.accumulators if a.function == "present" and a.column == one.column
    )


def forget_sql(head: AggregateHead, names: BlockNames) -> sql.Composed:
    """Return the statement that removes recomputed groups from `groups`; `delta` has their
    replacements.
    """
    return sql.SQL(
        "DELETE FROM {groups} WHERE id IN (SELECT {id} FROM (SELECT {keys} FROM {delta} AS d) AS x)"
    ).format(
        groups=names.groups,
        id=id_sql(head, "x"),
        keys=listed(_received_keys(head) or [sql.SQL("1")]),
        delta=names.delta,
    )


def renamed_sql(head: AggregateHead, names: BlockNames) -> sql.Composed | None:
    """Return the DELETE of groups whose id is no longer the hash of their keys; None if there can
    be none.

    `ALTER TYPE ... RENAME VALUE` changes the text of a stored key. A full read finds the group
    under its new id, and would treat the stored one, which has the same key, as a group that no
    longer exists.
    """
    if not any(key.type.is_user_defined for key in head.keys):
        return None
    return sql.SQL("DELETE FROM {} AS s WHERE s.id <> {}").format(
        names.state, row_id(_stored_keys(head))
    )


def _stored_keys(head: AggregateHead) -> list[sql.Composable]:
    """Return the keys of the state `s` in the types of `groups`."""
    return [staged(sql.Identifier("s", key.name), key.type) for key in head.keys]


def vanished_sql(head: AggregateHead, names: BlockNames) -> sql.Composed:
    """Return the statement that, after a full read, gives stored groups which were not found zero
    rows.
    """
    values = [_of_no_rows(one) for one, _ in head.state_columns]
    return sql.SQL(
        "INSERT INTO {groups} ({filled}) SELECT {values} FROM {state} AS s "
        "WHERE NOT EXISTS (SELECT FROM {groups} AS g WHERE g.id = s.id)"
    ).format(
        groups=names.groups,
        filled=_filled(head),
        values=listed([sql.SQL("s.id"), *_stored_keys(head), sql.SQL("true"), *values]),
        state=names.state,
    )


def merge_sql(
    head: AggregateHead, names: BlockNames, holistic: sql.Composable | None = None
) -> sql.Composed:
    """Return the MERGE into the state.

    `holistic` is a query of the holistic aggregates by group id.
    """
    merged: dict[str, sql.Composable] = {one.name: _merged(one, head) for one in head.accumulators}
    merged |= {one.name: sql.Identifier("g", one.name) for one in head.holistic}
    gone = sql.SQL("WHEN MATCHED AND {} = 0 THEN DELETE ").format(
        _merged(head.accumulators[0], head)
    )
    inserted = _inserted(head)
    return sql.SQL(
        "MERGE INTO {state} AS s USING {touched} AS g ON s.id = g.id {gone}"
        "WHEN MATCHED AND {stored} IS NOT DISTINCT FROM {now} THEN DO NOTHING "
        "WHEN MATCHED THEN UPDATE SET {update} "
        "WHEN NOT MATCHED AND g.n0 <> 0 THEN INSERT ({columns}) VALUES ({values})"
    ).format(
        state=names.state,
        touched=_touched(head, names, holistic),
        gone=gone if head.keys else sql.SQL(""),
        stored=row_text(sql.Identifier("s", name) for name in merged),
        now=row_text(merged.values()),
        update=listed(_assigned(name, value) for name, value in merged.items()),
        columns=listed(map(sql.Identifier, inserted)),
        values=listed(inserted.values()),
    )


def _assigned(name: str, value: sql.Composable) -> sql.Composed:
    return sql.SQL("{} = {}").format(sql.Identifier(name), value)


def _inserted(head: AggregateHead) -> dict[str, sql.Composable]:
    """Return the columns of a new group, with their values."""
    own = ["id", *(key.name for key in head.keys)]
    columns: dict[str, sql.Composable] = {name: sql.Identifier("g", name) for name in own}
    columns |= {one.name: _incoming(one) for one in head.accumulators}
    return columns | {one.name: sql.Identifier("g", one.name) for one in head.holistic}


def _touched(
    head: AggregateHead, names: BlockNames, holistic: sql.Composable | None
) -> sql.Composable:
    """Return the rows of `groups` in the types of the state, with the holistic aggregates."""
    typed = [(key.name, key.type) for key in head.keys]
    typed += [(f"{one.name}_in", one.type) for one in head.extremes]
    if holistic is None and not any(type_.is_user_defined for _, type_ in typed):
        return names.groups
    own = [one.name for one in head.accumulators if one.strategy != "extreme"]
    columns: list[sql.Composable] = [sql.Identifier("t", n) for n in ("id", "absolute", *own)]
    columns += [aliased(unstaged(sql.Identifier("t", n), type_), n) for n, type_ in typed]
    columns += [sql.Identifier("x", one.name) for one in head.holistic]
    joined = sql.SQL(" LEFT JOIN ({}) AS x ON x.id = t.id")
    return sql.SQL("(SELECT {columns} FROM {groups} AS t{joined})").format(
        columns=listed(columns),
        groups=names.groups,
        joined=sql.SQL("") if holistic is None else joined.format(holistic),
    )


def _incoming(one: Accumulator) -> sql.Identifier:
    return sql.Identifier("g", f"{one.name}_in" if one.strategy == "extreme" else one.name)


def _merged(one: Accumulator, head: AggregateHead) -> sql.Composable:
    """Return the new value of an accumulator."""
    incoming, stored = _incoming(one), sql.Identifier("s", one.name)
    if one.strategy == "recompute":
        return incoming
    if one.strategy == "sum":
        return sql.SQL(
            "CASE WHEN g.absolute THEN {incoming} ELSE {stored} + {incoming} END"
        ).format(incoming=incoming, stored=stored)
    present = _present(one, head)
    return sql.SQL(
        "CASE WHEN g.absolute THEN {incoming} WHEN {stored_present} + {present} = 0 THEN NULL "
        # If the values are equal, the incoming one, since it may have replaced the stored one ('1
        # day', '24 hours').
        "ELSE {best}({incoming}, {stored}) END"
    ).format(
        incoming=incoming,
        stored_present=sql.Identifier("s", present),
        present=sql.Identifier("g", present),
        best=sql.SQL("LEAST" if one.function == "min" else "GREATEST"),
        stored=stored,
    )


# -- the rows of an inner block --------------------------------------------------------------


def shown_sql(block: Block, names: BlockNames, *, temporary: bool = False) -> sql.Composed:
    """Return the view by which other blocks read this one: expressions over the state."""
    create = sql.SQL("CREATE TEMPORARY VIEW" if temporary else "CREATE VIEW")
    return sql.SQL(
        "{create} {shown} AS SELECT {outputs}, s.id::text AS {row} FROM {state} AS s{having}"
    ).format(
        create=create,
        shown=names.shown,
        outputs=outputs_sql(block),
        row=sql.Identifier(ROW),
        state=names.state,
        having=_having(block),
    )


def outputs_sql(block: Block) -> sql.Composed:
    """Return the final expressions under the names of the block's columns."""
    return listed(aliased(Printed(output.expr), output.column.name) for output in block.outputs)


def _having(block: Block) -> sql.Composable:
    return sql.SQL(" WHERE {}").format(Printed(block.having)) if block.having else sql.SQL("")


def changes_table_sql(block: Block, names: BlockNames) -> sql.Composed:
    """Return the staging table of images: the action, the block's outputs, and the position of the
    row.
    """
    own = [aliased(staged(sql.Identifier("v", c.name), c.type), c.name) for c in columns_of(block)]
    ours = [ROW, PART] if isinstance(block, MaterializedBlock) else [ROW]
    return sql.SQL(
        "CREATE TEMPORARY TABLE IF NOT EXISTS {changes} "
        "AS SELECT NULL::text AS __ms_action, {columns} FROM {shown} AS v WITH NO DATA"
    ).format(
        changes=names.changes,
        columns=listed([*own, *(sql.Identifier("v", name) for name in ours)]),
        shown=names.shown,
    )


def images_sql(block: Block, names: BlockNames, action: str) -> sql.Composed:
    """Return the statement that records the outputs of touched groups: 'D' before the MERGE, 'I'
    after it.
    """
    outputs = [
        staged(in_parentheses(Printed(output.expr)), output.column.type) for output in block.outputs
    ]
    return sql.SQL(
        "INSERT INTO {changes} SELECT {action}, {outputs}, s.id::text "
        "FROM {groups} AS g JOIN {state} AS s ON s.id = g.id{having}"
    ).format(
        changes=names.changes,
        action=sql.Literal(action),
        outputs=listed(outputs),
        groups=names.groups,
        state=names.state,
        having=_having(block),
    )


def unchanged_sql(block: Block, names: BlockNames) -> sql.Composed:
    """Return the statement that removes pairs of equal images."""
    return sql.SQL(
        "DELETE FROM {changes} WHERE {row} IN (SELECT c.{row} FROM {changes} AS c GROUP BY c.{row} "
        "HAVING count(*) = 2 AND min({text}) = max({text}))"
    ).format(
        changes=names.changes,
        row=sql.Identifier(ROW),
        text=row_text(sql.Identifier("c", column.name) for column in columns_of(block)),
    )


def index_sql(
    block: Block, names: BlockNames, reader: Input, columns: Sequence[str]
) -> sql.Composed:
    """Return the statement that creates an index for lookups in the block."""
    leaves = [reader.leaf(column) for column in columns]
    fixed = [leaf for leaf in leaves if leaf.wire.arrow != "string"] or leaves[:1]
    keys = [Printed(_over_stored(leaf.expr, block, reader).sql) for leaf in fixed]
    # Hash, since a text may be too long for a btree, and only equality is needed.
    is_text = len(fixed) == 1 and fixed[0].wire.arrow == "string"
    return sql.SQL("CREATE INDEX ON {stored}{how} ({keys})").format(
        stored=_stored(block, names),
        how=sql.SQL(" USING hash" if is_text else ""),
        keys=listed(map(in_parentheses, keys)),
    )


def order_index_sql(
    block: Block, names: BlockNames, reader: Input, order: Sequence[Order]
) -> sql.Composed:
    """Return the statement that creates an index for reading the first rows of a block in order."""
    keys = [
        sql.SQL("({}) {}").format(
            Printed(_over_stored(one.expr, block, reader).sql), Printed(one.how)
        )
        for one in order
    ]
    return sql.SQL("CREATE INDEX ON {} ({})").format(_stored(block, names), listed(keys))


def _stored(block: Block, names: BlockNames) -> sql.Identifier:
    return names.materialized if isinstance(block, MaterializedBlock) else names.state


def _over_stored(expression: Expr, block: Block, reader: Input) -> Expr:
    """Return an expression over what a block shows, over what it stores."""
    outputs = {Ref(reader.scan.alias, output.column.name): output for output in block.outputs}
    if isinstance(block, MaterializedBlock):
        return expression.substitute(
            {ref: Expr.of(exp.column(ref.column, quoted=True)) for ref in outputs}
        )
    return expression.substitute(
        {ref: _without_alias(Expr(f"({o.expr})"), "s") for ref, o in outputs.items()}
    )


def _without_alias(expression: Expr, alias: str) -> Expr:
    """Return an expression over the columns of one table, named without its alias: the key of an
    index.
    """

    def bare(node: exp.Expression) -> exp.Expression:
        return (
            exp.Column(this=node.this)
            if isinstance(node, exp.Column) and node.table == alias
            else node
        )

    return Expr.of(transform(expression.tree, bare))
