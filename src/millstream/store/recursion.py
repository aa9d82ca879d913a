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

from millstream.algebra.block import LEVEL, RecursionBlock, RecursionTerm
from millstream.algebra.table import ROW, quoted
from millstream.algebra.text_io import staged_sql
from millstream.algebra.wire import wire_of
from millstream.postgres.copy import postgres_type
from millstream.store.decode import consolidated_sql, decoded_rows
from millstream.store.materialized_rows import change_sql, copies_sql, filled_sql, stored_copies_sql
from millstream.store.names import PART, BlockNames, row_hash
from millstream.store.staging_columns import columns_of, sent_key_sql, stages, unstage


def tables_sql(block: RecursionBlock, names: BlockNames) -> list[str]:
    """Return the statements that create the staging tables."""
    made = {}
    for number, term in enumerate(block.terms):
        columns = [
            f"{quoted(c.name)} {postgres_type(c.wire.arrow_type)}" for c in term.block.columns
        ]
        made[names.of_term(number).delta] = (
            f"({', '.join([*columns, '__net bigint', '__run int'])})"
        )
    own = columns_of(block)
    rows = f"SELECT part, {_columns(block)}, 0::bigint AS __ms_net, 0 AS __ms_step FROM {names.materialized}"
    if stages(own):
        listed = ", ".join(f"{staged_sql(quoted(c.name), c.type)} AS {quoted(c.name)}" for c in own)
        rows = f"SELECT part, {listed}, 0::bigint AS __ms_net, 0 AS __ms_step FROM {names.materialized}"
    made |= dict.fromkeys((names.steps, names.gone), f"AS {rows} WITH NO DATA")
    return [
        f"CREATE TEMPORARY TABLE IF NOT EXISTS {name.removeprefix('pg_temp.')} {what}"
        for name, what in made.items()
    ]


def step(block: RecursionBlock, relation: str, number: int) -> str:
    """Return the rows of one step as a FROM item."""
    return f"(SELECT * FROM {_typed(block, relation)} AS t WHERE __ms_step = {number})"


def _typed(block: RecursionBlock, relation: str) -> str:
    """Return the rows of `steps` or `gone` in the recursion's types, as a FROM item without an
    alias.
    """
    return unstage(columns_of(block), relation, "s.part", "s.__ms_net", "s.__ms_step")


def _staged(block: RecursionBlock, alias: str) -> str:
    """Return the columns of typed rows in the types of staging tables."""
    return ", ".join(staged_sql(f"{alias}{quoted(c.name)}", c.type) for c in columns_of(block))


# -- what the terms give ---------------------------------------------------------------------


def _columns(block: RecursionBlock, alias: str = "") -> str:
    return ", ".join(f"{alias}{quoted(output.column.name)}" for output in block.outputs)


def _part(block: RecursionBlock) -> str:
    """Return what identifies a row: in a set its values, compared by PostgreSQL's `=`; otherwise
    its exact text.
    """
    columns = [f"x.{quoted(output.column.name)}" for output in block.outputs]
    if block.each_once:
        columns = [
            wire_of(o.column.type).key_sql(c) for o, c in zip(block.outputs, columns, strict=True)
        ]
    return f"encode({row_hash(columns)}, 'hex')::uuid"


def _summed(term: RecursionTerm, names: BlockNames, where: str, net: str, left: str) -> str:
    """Return a query of the consolidated rows of a term's delta that match a condition."""
    columns = [quoted(column.name) for column in term.block.columns]
    total = f"sum({net})::bigint"
    grouped = f" GROUP BY {', '.join(columns)}" if columns else ""
    listed = ", ".join([*columns, f"{total} AS __net"])
    return f"(SELECT {listed} FROM {names.delta} WHERE {where}{grouped} HAVING {total} {left})"


def _given(
    block: RecursionBlock,
    names: BlockNames,
    where: str,
    left: str,
    *,
    net: str = "__net",
    level: int | None = None,
) -> str:
    """Return a query of the rows that all terms derive: part, columns, net."""
    parts = []
    for number, term in enumerate(block.terms):
        own = names.of_term(number)
        outputs = ", ".join(
            f"{output.expr} AS {quoted(output.column.name)}" for output in term.block.outputs
        )
        asked = [f"{_level(term)} = {level}"] if level is not None else []
        asked += [term.block.having] if term.block.having else []
        kept = f" WHERE {' AND '.join(asked)}" if asked else ""
        rows = decoded_rows(term.block, own, _summed(term, own, where, net, left))
        parts.append(f"SELECT {outputs}, d.__net AS __ms_net FROM {rows}{kept}")
    return f"SELECT {_part(block)} AS part, x.* FROM ({' UNION ALL '.join(parts)}) AS x"


# -- UNION ALL: level by level ---------------------------------------------------------------


def _level(term: RecursionTerm) -> str:
    return next(output.expr for output in term.block.outputs if output.column.name == LEVEL)


def levels_sql(block: RecursionBlock, names: BlockNames) -> str:
    """Return a query of the levels that the changes themselves affect."""
    parts = []
    for number, term in enumerate(block.terms):
        own = names.of_term(number)
        rows = decoded_rows(term.block, own, f"(SELECT * FROM {own.delta} WHERE __run = 0)")
        parts.append(f"SELECT {_level(term)} AS level FROM {rows}")
    return f"SELECT DISTINCT x.level FROM ({' UNION ALL '.join(parts)}) AS x"


def level_sql(block: RecursionBlock, names: BlockNames, level: int) -> str:
    """Return the statement that computes the net of each row of a level, from the changes and from
    the level before.
    """
    given = _given(block, names, f"__run IN (0, {level})", "<> 0", level=level)
    consolidated = consolidated_sql(given, "x.part", "__ms_net")
    staged = _staged(block, "z.")
    return f"INSERT INTO {names.steps} SELECT part, {staged}, total, {level} FROM ({consolidated}) AS z"


def overdrawn_sql(names: BlockNames) -> str:
    """Return a query of the number of rows of which more copies are to be deleted than exist."""
    return (
        f"SELECT count(*) FROM {names.steps} AS b WHERE {stored_copies_sql(names)} + b.__ms_net < 0"
    )


def carry_out_levels_sql(block: RecursionBlock, names: BlockNames, *, full: bool) -> list[str]:
    """Return the statements that record the images and apply them to the stored rows."""
    rows = copies_sql(block, names, _typed(block, names.steps), full=full)
    return [*filled_sql(block, names, rows), *change_sql(block, names, full=full)]


# -- UNION: delete and rederive --------------------------------------------------------------


def lost_sql(block: RecursionBlock, names: BlockNames) -> str:
    """Return the statement that deletes stored rows which lost a derivation by the changes
    themselves.
    """
    return _taken(block, names, f"SELECT part FROM ({_given(block, names, 'true', '< 0')}) AS g", 0)


def lost_with_sql(block: RecursionBlock, names: BlockNames, run: int, number: int) -> str:
    """Return the statement that deletes stored rows with a derivation from deleted rows, unless it
    is a new one.
    """
    where = f"__run = {run} OR (__run = 0 AND __net > 0)"
    net = f"CASE __run WHEN {run} THEN __net ELSE -__net END"
    return _taken(
        block,
        names,
        f"SELECT part FROM ({_given(block, names, where, '> 0', net=net)}) AS g",
        number,
    )


def _taken(block: RecursionBlock, names: BlockNames, parts: str, number: int) -> str:
    return (
        f"INSERT INTO {names.gone} SELECT k.part, {_staged(block, 'k.')}, 1, {number} FROM {names.materialized} AS k "
        f"WHERE k.part IN ({parts}) "
        f"AND NOT EXISTS (SELECT FROM {names.gone} AS o WHERE o.part = k.part)"
    )


def take_out_sql(names: BlockNames) -> str:
    """Return the statement that removes deleted rows from the stored ones, so that they do not
    derive each other.
    """
    return f"DELETE FROM {names.materialized} AS k USING {names.gone} AS o WHERE o.part = k.part"


def forget_sql(block: RecursionBlock, names: BlockNames) -> list[str]:
    """Return the statement that clears the deltas of the steps, which are evaluated again over the
    remaining rows.
    """
    deltas = [
        names.of_term(number).delta
        for number, term in enumerate(block.terms)
        if term.itself is not None
    ]
    return [f"TRUNCATE {', '.join(deltas)}"]


def keys_sql(term: RecursionTerm, names: BlockNames) -> str:
    """Return a query of the wire keys by which derivations of the deleted rows are looked up."""
    wires = {column.name: column.wire for column in term.block.columns}
    types = {output.column.name: output.column.type for output in term.block.outputs}
    values = [
        sent_key_sql(f"o.{quoted(column)}", wires[body], types[column])
        for column, body in term.found_by
    ]
    return f"SELECT DISTINCT {', '.join([*values, '1'])} FROM {names.gone} AS o"


def found_sql(
    block: RecursionBlock, names: BlockNames, runs: Sequence[int], number: int, *, full: bool
) -> str:
    """Return the statement that inserts each row which was derived in these runs and does not exist
    yet.
    """
    listed = ", ".join(map(str, runs))
    return _new(
        block, names, _given(block, names, f"__run IN ({listed})", "> 0"), number, full=full
    )


def rederived_sql(block: RecursionBlock, names: BlockNames, run: int) -> str:
    """Return the statement that inserts again deleted rows which have a derivation from the
    remaining rows.
    """
    given = f"{_given(block, names, f'__run = {run}', '> 0')}"
    of_them = (
        f"SELECT g.* FROM ({given}) AS g WHERE g.part IN (SELECT o.part FROM {names.gone} AS o)"
    )
    return _new(block, names, of_them, 0, full=False)


def _new(block: RecursionBlock, names: BlockNames, given: str, number: int, *, full: bool) -> str:
    places = [names.steps] if full else [names.steps, names.materialized]
    there = " AND ".join(
        f"NOT EXISTS (SELECT FROM {place} AS t WHERE t.part = g.part)" for place in places
    )
    return (
        f"INSERT INTO {names.steps} SELECT DISTINCT ON (g.part) g.part, {_staged(block, 'g.')}, 1, {number} "
        f"FROM ({given}) AS g WHERE {there}"
    )


def carry_out_set_sql(block: RecursionBlock, names: BlockNames, *, full: bool) -> list[str]:
    """Return the statements that store the derived rows, and record how they differ from the
    deleted ones.
    """
    if full:
        rows = f"SELECT part, {_columns(block)} FROM {_typed(block, names.steps)} AS t"
        return [*filled_sql(block, names, rows), *change_sql(block, names, full=True)]
    went, came = (
        _images(block, *pair) for pair in ((names.gone, names.steps), (names.steps, names.gone))
    )
    return [
        f"INSERT INTO {names.changes} SELECT 'D', {went} UNION ALL SELECT 'I', {came}",
        f"INSERT INTO {names.materialized} SELECT part, {_columns(block)} FROM {_typed(block, names.steps)} AS t",
    ]


def _images(block: RecursionBlock, of: str, but: str) -> str:
    texts = [f"ROW({_columns(block, alias)})::text" for alias in ("o.", "t.")]
    return (
        f"{_columns(block, 'o.')}, NULL::text AS {ROW}, o.part AS {PART} FROM {of} AS o "
        f"WHERE NOT EXISTS (SELECT FROM {but} AS t WHERE t.part = o.part AND {texts[0]} = {texts[1]})"
    )
