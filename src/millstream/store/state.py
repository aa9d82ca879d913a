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
from millstream.algebra.table import ROW, quoted
from millstream.algebra.text_io import staged_sql, unstaged_sql
from millstream.large_stack import on_large_stack
from millstream.store.names import PART, BlockNames, row_hash
from millstream.store.staging_columns import columns_of, received_sql, sent_key_sql


def create_sql(block: Block, head: AggregateHead, names: BlockNames) -> list[str]:
    """Return the statements that create the state table, with types and collations of the query's
    expressions.
    """
    own = [*(key.name for key in head.keys), *(one.column for one in head.extremes if one.column)]
    source = empty_select(block, list(dict.fromkeys(own)), names)
    columns = [f"b.{quoted(key.name)}::{key.type.name} AS {quoted(key.name)}" for key in head.keys]
    columns += [f"{_initial(one)} AS {quoted(one.name)}" for one in head.accumulators]
    columns += [f"{_of_nothing(one, block, head, names)} AS {one.name}" for one in head.holistic]
    least = "> 0" if head.keys else ">= 0"
    statements = [
        f"CREATE TABLE {names.state} AS SELECT NULL::uuid AS id, {', '.join(columns)} FROM ({source}) AS b",
        f"ALTER TABLE {names.state} ADD PRIMARY KEY (id), ADD CONSTRAINT rows_counted CHECK (n0 {least})",
    ]
    return statements if head.keys else [*statements, _only_row(block, head, names)]


@on_large_stack
def empty_select(block: Block, columns: Sequence[str], names: BlockNames) -> str:
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
    typed = {
        name: f"CAST(NULL AS {type_.name})"
        for name, type_ in types.items()
        if type_.collation == "none"
    }
    untyped = [output for output in branch.body.outputs if output.name not in typed]
    found = {output.name: output.expr.substitute({**marks, **leaves}).sql for output in untyped}
    listed = ", ".join(f"{typed.get(name) or found[name]} AS {quoted(name)}" for name in columns)
    tables = ", ".join(one.scan.item(names.source(one.scan.table)) for one in branch.inputs)
    return f"SELECT {listed or '1'} FROM {tables} WHERE false"


def _initial(one: Accumulator) -> str:
    if one.strategy == "extreme":
        assert one.column is not None
        return f"b.{quoted(one.column)}::{one.type.name}"
    return f"0::{one.type.name}"


def _of_nothing(
    one: HolisticAggregate, block: Block, head: AggregateHead, names: BlockNames
) -> str:
    """Return a holistic aggregate over no rows, which has the right type and collation."""
    return f"(SELECT {one.expr} FROM ({empty_select(block, [c.name for c in head.row_columns], names)}) AS r)"


def _only_row(block: Block, head: AggregateHead, names: BlockNames) -> str:
    """Return the statement that inserts the only group of an aggregate without keys."""
    values = ["NULL" if one.strategy == "extreme" else "0" for one in head.accumulators]
    values += [_of_nothing(one, block, head, names) for one in head.holistic]
    return f"INSERT INTO {names.state} VALUES ({id_sql(head, 'x')}, {', '.join(values)})"


def id_sql(head: AggregateHead, alias: str) -> str:
    """Return the expression for a group's id."""
    if not head.keys:
        return "'00000000-0000-0000-0000-000000000000'::uuid"
    keys = [f"{alias}.{quoted(key.name)}" for key in head.keys]
    return f"encode({row_hash(keys)}, 'hex')::uuid"


def groups_table_sql(head: AggregateHead, names: BlockNames) -> str:
    """Return the staging table of touched groups: the change of their state, or the new state."""
    keys = [f"{staged_sql(quoted(key.name), key.type)} AS {quoted(key.name)}" for key in head.keys]
    columns = ["id", *keys, "false AS absolute"]
    for one in head.accumulators:
        if one.strategy == "extreme":
            columns += [
                f"{staged_sql(one.name, one.type)} AS {one.name}_{way}" for way in ("in", "out")
            ]
        else:
            columns.append(one.name)
    return (
        f"CREATE TEMPORARY TABLE IF NOT EXISTS {names.groups.removeprefix('pg_temp.')} "
        f"AS SELECT {', '.join(columns)} FROM {names.state} WITH NO DATA"
    )


def decode_sql(head: AggregateHead, names: BlockNames, *, absolute: bool) -> str:
    """Return the statement that fills `groups` from the rows that Spark sent."""
    values = [f"{_decoded(one, name, names.state)} AS {name}" for one, name in head.state_columns]
    inner = f"SELECT {', '.join(_received_keys(head) + values)} FROM {names.delta} AS d"
    listed = [f"x.{quoted(key.name)}" for key in head.keys]
    outer = [
        id_sql(head, "x"),
        *listed,
        str(absolute).lower(),
        *(f"x.{name}" for _, name in head.state_columns),
    ]
    return f"INSERT INTO {names.groups} ({_filled(head)}) SELECT {', '.join(outer)} FROM ({inner}) AS x"


def _received_keys(head: AggregateHead) -> list[str]:
    """Return the sent keys in the types of `groups`.

    Their text, and so the group's id, is that of the values.
    """
    found = [(quoted(key.name), key) for key in head.keys]
    return [f"{received_sql(f'd.{name}', key.wire, key.type)} AS {name}" for name, key in found]


def _filled(head: AggregateHead) -> str:
    return ", ".join(
        [
            "id",
            *(quoted(key.name) for key in head.keys),
            "absolute",
            *(name for _, name in head.state_columns),
        ]
    )


def _decoded(one: Accumulator, name: str, state: str) -> str:
    assert one.wire is not None
    if one.strategy == "extreme" and one.order is None:
        # PostgreSQL picks the best of the candidates, by its own order: the collation is the
        # state's.
        value = one.wire.decode_sql("v", one.type)
        typed = f"SELECT {one.name} FROM {state} WHERE false UNION ALL SELECT {value}"
        candidates = f"{typed} FROM jsonb_array_elements_text(d.{name}::jsonb) AS v"
        return staged_sql(
            f"(SELECT {one.function}(c.{one.name}) FROM ({candidates}) AS c)", one.type
        )
    return received_sql(f"d.{name}", one.wire, one.type)


def lost_sql(head: AggregateHead, names: BlockNames) -> str:
    """Return a query of the wire keys of the groups that must be recomputed.

    These are all groups with rows if something is always recomputed; otherwise those whose stored
    extreme was deleted and not replaced by an inserted value.
    """
    keys = sent_keys(head) or ["1"]
    lost = "true" if head.recomputed else " OR ".join(_lost(one, head) for one in head.extremes)
    return (
        f"SELECT {', '.join([*keys, '1'])} FROM {names.groups} AS g LEFT JOIN {names.state} AS s ON s.id = g.id "
        f"WHERE coalesce(s.n0, 0) + g.n0 > 0 AND ({lost})"
    )


def sent_keys(head: AggregateHead) -> list[str]:
    """Return the keys of `groups` in their wire form."""
    return [sent_key_sql(f"g.{quoted(key.name)}", key.wire, key.type) for key in head.keys]


def _lost(one: Accumulator, head: AggregateHead) -> str:
    came, went = (unstaged_sql(f"g.{one.name}_{way}", one.type) for way in ("in", "out"))
    present = next(
        a.name for a in head.accumulators if a.function == "present" and a.column == one.column
    )
    reached, better = ("<=", ">") if one.function == "min" else (">=", "<")
    noticed = f" AND s.{one.name} > {one.level}" if one.level is not None else ""
    return (
        f"(s.{present} + g.{present} > 0 AND {went} {reached} s.{one.name}"
        f" AND (g.{one.name}_in IS NULL OR {came} {better} s.{one.name}){noticed})"
    )


def forget_sql(head: AggregateHead, names: BlockNames) -> str:
    """Return the statement that removes recomputed groups from `groups`; `delta` has their
    replacements.
    """
    inner = f"SELECT {', '.join(_received_keys(head)) or '1'} FROM {names.delta} AS d"
    return (
        f"DELETE FROM {names.groups} WHERE id IN (SELECT {id_sql(head, 'x')} FROM ({inner}) AS x)"
    )


def renamed_sql(head: AggregateHead, names: BlockNames) -> str | None:
    """Return the DELETE of groups whose id is no longer the hash of their keys; None if there can
    be none.

    `ALTER TYPE ... RENAME VALUE` changes the text of a stored key. A full read finds the group
    under its new id, and would treat the stored one, which has the same key, as a group that no
    longer exists.
    """
    if not any(key.type.is_user_defined for key in head.keys):
        return None
    keys = [staged_sql(f"s.{quoted(key.name)}", key.type) for key in head.keys]
    return f"DELETE FROM {names.state} AS s WHERE s.id <> encode({row_hash(keys)}, 'hex')::uuid"


def vanished_sql(head: AggregateHead, names: BlockNames) -> str:
    """Return the statement that, after a full read, gives stored groups which were not found zero
    rows.
    """
    keys = [staged_sql(f"s.{quoted(key.name)}", key.type) for key in head.keys]
    values = ["NULL" if one.strategy == "extreme" else "0" for one, _ in head.state_columns]
    return (
        f"INSERT INTO {names.groups} ({_filled(head)}) "
        f"SELECT {', '.join(['s.id', *keys, 'true', *values])} FROM {names.state} AS s "
        f"WHERE NOT EXISTS (SELECT FROM {names.groups} AS g WHERE g.id = s.id)"
    )


def merge_sql(head: AggregateHead, names: BlockNames, holistic: str = "") -> str:
    """Return the MERGE into the state.

    `holistic` is a query of the holistic aggregates by group id.
    """
    own = [one.name for one in head.holistic]
    merged = {one.name: _merged(one, head) for one in head.accumulators} | {
        name: f"g.{name}" for name in own
    }
    update = ", ".join(f"{name} = {value}" for name, value in merged.items())
    columns = ["id", *(quoted(key.name) for key in head.keys), *merged]
    values = [
        "g.id",
        *(f"g.{quoted(key.name)}" for key in head.keys),
        *(_incoming(one) for one in head.accumulators),
    ]
    values += [f"g.{name}" for name in own]
    now, stored = list(merged.values()), [f"s.{name}" for name in merged]
    same = f"ROW({', '.join(stored)})::text IS NOT DISTINCT FROM ROW({', '.join(now)})::text"
    gone = (
        f"WHEN MATCHED AND {_merged(head.accumulators[0], head)} = 0 THEN DELETE "
        if head.keys
        else ""
    )
    return (
        f"MERGE INTO {names.state} AS s USING {_touched(head, names, holistic)} AS g ON s.id = g.id {gone}"
        f"WHEN MATCHED AND {same} THEN DO NOTHING WHEN MATCHED THEN UPDATE SET {update} "
        f"WHEN NOT MATCHED AND g.n0 <> 0 THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(values)})"
    )


def _touched(head: AggregateHead, names: BlockNames, holistic: str) -> str:
    """Return the rows of `groups` in the types of the state, with the holistic aggregates."""
    own = [(quoted(key.name), key.type) for key in head.keys]
    own += [(f"{one.name}_in", one.type) for one in head.extremes]
    if not holistic and not any(type_.is_user_defined for _, type_ in own):
        return names.groups
    listed = [
        "t.id",
        "t.absolute",
        *(f"t.{one.name}" for one in head.accumulators if one.strategy != "extreme"),
    ]
    listed += [f"{unstaged_sql(f't.{name}', type_)} AS {name}" for name, type_ in own]
    listed += [f"x.{one.name}" for one in head.holistic]
    joined = f" LEFT JOIN ({holistic}) AS x ON x.id = t.id" if holistic else ""
    return f"(SELECT {', '.join(listed)} FROM {names.groups} AS t{joined})"


def _incoming(one: Accumulator) -> str:
    return f"g.{one.name}_in" if one.strategy == "extreme" else f"g.{one.name}"


def _merged(one: Accumulator, head: AggregateHead) -> str:
    """Return the new value of an accumulator."""
    incoming = _incoming(one)
    if one.strategy == "sum":
        return f"CASE WHEN g.absolute THEN {incoming} ELSE s.{one.name} + {incoming} END"
    if one.strategy == "recompute":
        return incoming
    present = next(
        a for a in head.accumulators if a.function == "present" and a.column == one.column
    )
    best = "LEAST" if one.function == "min" else "GREATEST"
    return (
        f"CASE WHEN g.absolute THEN {incoming} WHEN s.{present.name} + g.{present.name} = 0 THEN NULL "
        # Of equal values the incoming one: the stored one may be what was replaced by it ('1 day', '24 hours').
        f"ELSE {best}({incoming}, s.{one.name}) END"
    )


# -- the rows of an inner block --------------------------------------------------------------


def shown_sql(block: Block, names: BlockNames, *, temporary: bool = False) -> str:
    """Return the view by which other blocks read this one: expressions over the state."""
    having = f" WHERE {block.having}" if block.having else ""
    create = "CREATE TEMPORARY VIEW" if temporary else "CREATE VIEW"
    return f"{create} {names.shown} AS SELECT {_shown(block)} FROM {names.state} AS s{having}"


def _shown(block: Block) -> str:
    outputs = [f"{output.expr} AS {quoted(output.column.name)}" for output in block.outputs]
    return ", ".join([*outputs, f"s.id::text AS {ROW}"])


def changes_table_sql(block: Block, names: BlockNames) -> str:
    """Return the staging table of images: the action, the block's outputs, and the position of the
    row.
    """
    own = [(quoted(column.name), column.type) for column in columns_of(block)]
    listed = [f"{staged_sql(f'v.{name}', type_)} AS {name}" for name, type_ in own]
    listed += [f"v.{ROW}", f"v.{PART}"] if isinstance(block, MaterializedBlock) else [f"v.{ROW}"]
    return (
        f"CREATE TEMPORARY TABLE IF NOT EXISTS {names.changes.removeprefix('pg_temp.')} "
        f"AS SELECT NULL::text AS __ms_action, {', '.join(listed)} FROM {names.shown} AS v WITH NO DATA"
    )


def images_sql(block: Block, names: BlockNames, action: str) -> str:
    """Return the statement that records the outputs of touched groups: 'D' before the MERGE, 'I'
    after it.
    """
    having = f" WHERE {block.having}" if block.having else ""
    outputs = [staged_sql(f"({output.expr})", output.column.type) for output in block.outputs]
    return (
        f"INSERT INTO {names.changes} SELECT '{action}', {', '.join([*outputs, 's.id::text'])} "
        f"FROM {names.groups} AS g JOIN {names.state} AS s ON s.id = g.id{having}"
    )


def unchanged_sql(block: Block, names: BlockNames) -> str:
    """Return the statement that removes pairs of equal images."""
    listed = ", ".join(f"c.{quoted(output.column.name)}" for output in block.outputs)
    text = f"ROW({listed})::text"
    return (
        f"DELETE FROM {names.changes} WHERE {ROW} IN (SELECT c.{ROW} FROM {names.changes} AS c GROUP BY c.{ROW} "
        f"HAVING count(*) = 2 AND min({text}) = max({text}))"
    )


def index_sql(block: Block, names: BlockNames, reader: Input, columns: Sequence[str]) -> str:
    """Return the statement that creates an index for lookups in the block."""
    leaves = [reader.leaf(column) for column in columns]
    fixed = [leaf for leaf in leaves if leaf.wire.arrow != "string"] or leaves[:1]
    keys = [_over_stored(leaf.expr, block, reader).sql for leaf in fixed]
    # A text may be too long for a btree; only equality is asked for.
    how = " USING hash" if len(fixed) == 1 and fixed[0].wire.arrow == "string" else ""
    return f"CREATE INDEX ON {_stored(block, names)}{how} ({', '.join(f'({key})' for key in keys)})"


def order_index_sql(block: Block, names: BlockNames, reader: Input, order: Sequence[Order]) -> str:
    """Return the statement that creates an index for reading the first rows of a block in order."""
    keys = [f"({_over_stored(one.expr, block, reader)}) {one.how}" for one in order]
    return f"CREATE INDEX ON {_stored(block, names)} ({', '.join(keys)})"


def _stored(block: Block, names: BlockNames) -> str:
    return names.materialized if isinstance(block, MaterializedBlock) else names.state


def _over_stored(expression: Expr, block: Block, reader: Input) -> Expr:
    """Return an expression over what a block shows, over what it stores."""
    outputs = {Ref(reader.scan.alias, output.column.name): output for output in block.outputs}
    if isinstance(block, MaterializedBlock):
        return expression.substitute({ref: Expr(quoted(ref.column)) for ref in outputs})
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
