"""Build the SQL that maintains the rows of a recursion.

    delta     per term: the rows that Spark sent, with the run that sent them, not decoded yet
    steps     derived rows, with the step that derived them
    gone      deleted rows, with the step that deleted them (UNION)

The columns of a term are computed from rows of `delta`, but only after all runs were summed and
only if a row remains: an expression is never evaluated for a pair of rows that did not exist at the
same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from millstream.algebra.block import LEVEL, RecursionBlock, RecursionTerm
from millstream.algebra.table import ROW
from millstream.algebra.wire import wire_of
from millstream.postgres.composed import (
    Printed,
    aliased,
    all_of,
    listed,
    row_text,
    union_all,
)
from millstream.postgres.copy import column_definitions
from millstream.store.decode import consolidated_sql, decoded_rows
from millstream.store.materialized_rows import change_sql, copies_sql, filled_sql, stored_copies_sql
from millstream.store.names import PART, BlockNames
from millstream.store.staging_columns import columns_of, sent_key, staged, staged_key, unstage
from millstream.store.state import outputs_sql, row_id


def tables_sql(block: RecursionBlock, names: BlockNames) -> list[sql.Composed]:
    """Return the statements that create the staging tables."""
    deltas = [_delta_table(term, names.of_term(number)) for number, term in enumerate(block.terms)]
    return [*deltas, *(_steps_table(block, names, name) for name in (names.steps, names.gone))]


def _delta_table(term: RecursionTerm, names: BlockNames) -> sql.Composed:
    sent = [(column.name, column.wire.arrow_type) for column in term.block.columns]
    schema = pa.schema([*sent, ("__net", pa.int64()), ("__run", pa.int32())])
    return sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {delta} ({columns})").format(
        delta=names.delta, columns=column_definitions(schema)
    )


def _steps_table(block: RecursionBlock, names: BlockNames, name: sql.Identifier) -> sql.Composed:
    columns = [aliased(staged(sql.Identifier(c.name), c.type), c.name) for c in columns_of(block)]
    return sql.SQL(
        "CREATE TEMPORARY TABLE IF NOT EXISTS {name} AS SELECT part, {columns}, "
        "0::bigint AS __ms_net, 0 AS __ms_step FROM {materialized} WITH NO DATA"
    ).format(name=name, columns=listed(columns), materialized=names.materialized)


def step(block: RecursionBlock, relation: sql.Identifier, number: int) -> sql.Composed:
    """Return the rows of one step as a FROM item."""
    return sql.SQL("(SELECT * FROM {} AS t WHERE __ms_step = {})").format(
        _typed(block, relation), number
    )


def _typed(block: RecursionBlock, relation: sql.Identifier) -> sql.Composable:
    """Return the rows of `steps` or `gone` in the recursion's types, as a FROM item without an
    alias.
    """
    others = [sql.Identifier("s", name) for name in ("part", "__ms_net", "__ms_step")]
    return unstage(columns_of(block), relation, *others)


def _staged(block: RecursionBlock, alias: str) -> sql.Composed:
    """Return the columns of typed rows in the types of staging tables."""
    return listed(staged(sql.Identifier(alias, c.name), c.type) for c in columns_of(block))


# -- rows that the terms derive
# ---------------------------------------------------------------------


def _columns(block: RecursionBlock, *alias: str) -> list[sql.Identifier]:
    return [sql.Identifier(*alias, column.name) for column in columns_of(block)]


def _part(block: RecursionBlock) -> sql.Composed:
    """Return what identifies a row: in a set its values, compared by PostgreSQL's `=`; otherwise
    its exact text.
    """
    columns = _columns(block, "x")
    if not block.each_once:
        return row_id(columns)
    types = [column.type for column in columns_of(block)]
    return row_id([sent_key(c, wire_of(t)) for c, t in zip(columns, types, strict=True)])


_NET = sql.SQL("__net")
# What the sum of a row's derivations must be for the row to count.
_SOME, _LOST, _GAINED = sql.SQL("<> 0"), sql.SQL("< 0"), sql.SQL("> 0")


@dataclass(frozen=True)
class _Derivations:
    """Which derivations count: the rows of a delta that match a condition, and the sign of their
    sum.
    """

    where: sql.Composable
    sign: sql.SQL
    net: sql.Composable | None = None
    """The summed expression, if it is not the column `__net`."""
    level: int | None = None
    """Only rows of this level."""


def _summed(term: RecursionTerm, names: BlockNames, wanted: _Derivations) -> sql.Composed:
    """Return a query of the consolidated rows of a term's delta that are wanted."""
    columns = [sql.Identifier(column.name) for column in term.block.columns]
    total = sql.SQL("sum({})::bigint").format(wanted.net or _NET)
    grouped = sql.SQL(" GROUP BY {}").format(listed(columns)) if columns else sql.SQL("")
    return sql.SQL(
        "(SELECT {columns} FROM {delta} WHERE {where}{grouped} HAVING {total} {sign})"
    ).format(
        columns=listed([*columns, aliased(total, "__net")]),
        delta=names.delta,
        where=wanted.where,
        grouped=grouped,
        total=total,
        sign=wanted.sign,
    )


def _derived_rows(block: RecursionBlock, names: BlockNames, wanted: _Derivations) -> sql.Composed:
    """Return a query of the rows that all terms derive: part, columns, net."""
    parts = []
    for number, term in enumerate(block.terms):
        own = names.of_term(number)
        rows = decoded_rows(term.block, own, _summed(term, own, wanted))
        parts.append(_derived(term, rows, wanted.level))
    return sql.SQL("SELECT {part} AS part, x.* FROM ({rows}) AS x").format(
        part=_part(block), rows=union_all(parts)
    )


def _derived(term: RecursionTerm, rows: sql.Composable, level: int | None) -> sql.Composed:
    """Return a query of the rows that one term derives, of one level or of all."""
    asked: list[sql.Composable] = []
    if level is not None:
        asked.append(sql.SQL("{} = {}").format(_level(term), level))
    if term.block.having:
        asked.append(Printed(term.block.having))
    where = sql.SQL(" WHERE {}").format(all_of(asked)) if asked else sql.SQL("")
    return sql.SQL("SELECT {outputs}, d.__net AS __ms_net FROM {rows}{where}").format(
        outputs=outputs_sql(term.block), rows=rows, where=where
    )


# -- UNION ALL: level by level ---------------------------------------------------------------


def _level(term: RecursionTerm) -> Printed:
    outputs = term.block.outputs
    return next(Printed(output.expr) for output in outputs if output.column.name == LEVEL)


def levels_sql(block: RecursionBlock, names: BlockNames) -> sql.Composed:
    """Return a query of the levels that the changes themselves affect."""
    parts = []
    for number, term in enumerate(block.terms):
        own = names.of_term(number)
        changes = sql.SQL("(SELECT * FROM {} WHERE __run = 0)").format(own.delta)
        rows = decoded_rows(term.block, own, changes)
        parts.append(sql.SQL("SELECT {} AS level FROM {}").format(_level(term), rows))
    return sql.SQL("SELECT DISTINCT x.level FROM ({}) AS x").format(union_all(parts))


def level_sql(block: RecursionBlock, names: BlockNames, level: int) -> sql.Composed:
    """Return the statement that computes the net of each row of a level, from the changes and from
    the level before.
    """
    runs = sql.SQL("__run IN (0, {})").format(level)
    given = _derived_rows(block, names, _Derivations(runs, _SOME, level=level))
    return sql.SQL(
        "INSERT INTO {steps} SELECT part, {columns}, total, {level} FROM ({consolidated}) AS z"
    ).format(
        steps=names.steps,
        columns=_staged(block, "z"),
        level=level,
        consolidated=consolidated_sql(given, sql.SQL("x.part"), "__ms_net"),
    )


def overdrawn_sql(names: BlockNames) -> sql.Composed:
    """Return a query of the number of rows of which more copies are to be deleted than exist."""
    return sql.SQL("SELECT count(*) FROM {} AS b WHERE {} + b.__ms_net < 0").format(
        names.steps, stored_copies_sql(names)
    )


def carry_out_levels_sql(
    block: RecursionBlock, names: BlockNames, *, full: bool
) -> list[sql.Composed]:
    """Return the statements that record the images and apply them to the stored rows."""
    rows = copies_sql(block, names, _typed(block, names.steps), full=full)
    return [*filled_sql(block, names, rows), *change_sql(block, names, full=full)]


# -- UNION: delete and rederive --------------------------------------------------------------


def lost_sql(block: RecursionBlock, names: BlockNames) -> sql.Composed:
    """Return the statement that deletes stored rows which lost a derivation by the changes
    themselves.
    """
    return _taken(
        block, names, _derived_rows(block, names, _Derivations(sql.SQL("true"), _LOST)), 0
    )


def lost_with_sql(block: RecursionBlock, names: BlockNames, run: int, number: int) -> sql.Composed:
    """Return the statement that deletes stored rows with a derivation from deleted rows, unless it
    is a new one.
    """
    where = sql.SQL("__run = {run} OR (__run = 0 AND __net > 0)").format(run=run)
    net = sql.SQL("CASE __run WHEN {run} THEN __net ELSE -__net END").format(run=run)
    return _taken(
        block, names, _derived_rows(block, names, _Derivations(where, _GAINED, net=net)), number
    )


def _taken(
    block: RecursionBlock, names: BlockNames, given: sql.Composable, number: int
) -> sql.Composed:
    return sql.SQL(
        "INSERT INTO {gone} SELECT k.part, {columns}, 1, {number} FROM {materialized} AS k "
        "WHERE k.part IN (SELECT part FROM ({given}) AS g) "
        "AND NOT EXISTS (SELECT FROM {gone} AS o WHERE o.part = k.part)"
    ).format(
        gone=names.gone,
        columns=_staged(block, "k"),
        number=number,
        materialized=names.materialized,
        given=given,
    )


def take_out_sql(names: BlockNames) -> sql.Composed:
    """Return the statement that removes deleted rows from the stored ones, so that they do not
    derive each other.
    """
    return sql.SQL("DELETE FROM {} AS k USING {} AS o WHERE o.part = k.part").format(
        names.materialized, names.gone
    )


def forget_sql(block: RecursionBlock, names: BlockNames) -> list[sql.Composed]:
    """Return the statement that clears the deltas of the steps, which are evaluated again over the
    remaining rows.
    """
    deltas = [
        names.of_term(number).delta
        for number, term in enumerate(block.terms)
        if term.itself is not None
    ]
    return [sql.SQL("TRUNCATE {}").format(listed(deltas))]


def keys_sql(term: RecursionTerm, names: BlockNames) -> sql.Composed:
    """Return a query of the wire keys by which derivations of the deleted rows are looked up."""
    wires = {column.name: column.wire for column in term.block.columns}
    types = {output.column.name: output.column.type for output in term.block.outputs}
    values = [
        staged_key(sql.Identifier("o", column), wires[body], types[column])
        for column, body in term.found_by
    ]
    return sql.SQL("SELECT DISTINCT {columns} FROM {gone} AS o").format(
        columns=listed([*values, sql.SQL("1")]), gone=names.gone
    )


def found_sql(
    block: RecursionBlock, names: BlockNames, runs: Sequence[int], number: int, *, full: bool
) -> sql.Composed:
    """Return the statement that inserts each row which was derived in these runs and does not exist
    yet.
    """
    where = sql.SQL("__run IN ({})").format(listed(map(sql.Literal, runs)))
    return _new(
        block, names, _derived_rows(block, names, _Derivations(where, _GAINED)), number, full=full
    )


def rederived_sql(block: RecursionBlock, names: BlockNames, run: int) -> sql.Composed:
    """Return the statement that inserts again deleted rows which have a derivation from the
    remaining rows.
    """
    given = _derived_rows(block, names, _Derivations(sql.SQL("__run = {}").format(run), _GAINED))
    of_them = sql.SQL(
        "SELECT g.* FROM ({given}) AS g WHERE g.part IN (SELECT o.part FROM {gone} AS o)"
    ).format(given=given, gone=names.gone)
    return _new(block, names, of_them, 0, full=False)


def _new(
    block: RecursionBlock, names: BlockNames, given: sql.Composable, number: int, *, full: bool
) -> sql.Composed:
    places = [names.steps] if full else [names.steps, names.materialized]
    absent = sql.SQL("NOT EXISTS (SELECT FROM {} AS t WHERE t.part = g.part)")
    return sql.SQL(
        "INSERT INTO {steps} SELECT DISTINCT ON (g.part) g.part, {columns}, 1, {number} "
        "FROM ({given}) AS g WHERE {absent}"
    ).format(
        steps=names.steps,
        columns=_staged(block, "g"),
        number=number,
        given=given,
        absent=all_of(absent.format(place) for place in places),
    )


def carry_out_set_sql(
    block: RecursionBlock, names: BlockNames, *, full: bool
) -> list[sql.Composed]:
    """Return the statements that store the derived rows, and record how they differ from the
    deleted ones.
    """
    rows = sql.SQL("SELECT part, {} FROM {} AS t").format(
        listed(_columns(block)), _typed(block, names.steps)
    )
    if full:
        return [*filled_sql(block, names, rows), *change_sql(block, names, full=True)]
    images = sql.SQL(
        "INSERT INTO {changes} SELECT 'D', {went} UNION ALL SELECT 'I', {came}"
    ).format(
        changes=names.changes,
        went=_images(block, names.gone, names.steps),
        came=_images(block, names.steps, names.gone),
    )
    return [images, sql.SQL("INSERT INTO {} {}").format(names.materialized, rows)]


def _images(block: RecursionBlock, of: sql.Identifier, but: sql.Identifier) -> sql.Composed:
    return sql.SQL(
        "{columns}, NULL::text AS {row}, o.part AS {part} FROM {of} AS o "
        "WHERE NOT EXISTS (SELECT FROM {but} AS t WHERE t.part = o.part AND {here} = {there})"
    ).format(
        columns=listed(_columns(block, "o")),
        row=sql.Identifier(ROW),
        part=sql.Identifier(PART),
        of=of,
        but=but,
        here=row_text(_columns(block, "o")),
        there=row_text(_columns(block, "t")),
    )
