"""The SQL that reads an input: its slice of changes, its rows by key, or all of it.

All three select the same leaf columns, so a row read one way cannot differ from the row read
another way. Each row has two counts, before and after the refresh:

    a stored row                                    1, 1
    the image of an inserted row in the slice      -1, 0     the row was not there before
    the image of a deleted row in the slice        +1, 0
    a stored row that crosses a temporal filter     1 in the version in which it passes, 0 in the other
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from millstream.algebra.block import Input, Leaf
from millstream.algebra.table import ROW as STANDS
from millstream.algebra.table import BlockRows, SourceTable
from millstream.algebra.types import PgType
from millstream.capture.buffer import slices
from millstream.postgres.composed import (
    Printed,
    aliased,
    all_of,
    in_parentheses,
    listed,
    row_text,
)
from millstream.store.names import BlockNames, from_item
from millstream.store.staging_columns import decoded, unstage

ROW = "__row"
"""The column that says where a row is stored: it identifies the row within a snapshot."""

# Types whose modifier truncates or rounds a value.
_MODIFIED = frozenset(
    {"numeric", "bpchar", "varchar", "bit", "varbit", "time", "timestamp", "timestamptz"}
)


@dataclass(frozen=True)
class FilterVersions:
    """The temporal filters of an input, as conditions before and after one refresh."""

    items: tuple[sql.Composable, ...] = ()
    """FROM items: the single rows that the conditions read."""
    was: sql.Composable | None = None
    now: sql.Composable | None = None
    between: sql.Composable | None = None
    """A condition that all crossing rows satisfy, for an index; None if none is known."""

    def __post_init__(self) -> None:
        if (self.was is None) != (self.now is None):
            raise ValueError("a filter has two versions, or there is none")

    @property
    def may_cross(self) -> bool:
        """True if a row may pass the filters in one version and not in the other."""
        return self.was != self.now

    def stored(self, before: int) -> tuple[list[sql.Composable], list[sql.Composable]]:
        """Return the counts of a stored row, before and after, and the conditions under which it is
        read.
        """
        if self.was is None or self.now is None or not self.may_cross or before == 0:
            return [sql.Literal(before), sql.Literal(1)], _conditions(self.now)
        passes = sql.SQL("CASE WHEN {} THEN 1 ELSE 0 END")
        either = sql.SQL("(({}) OR ({}))").format(self.was, self.now)
        return [passes.format(self.was), passes.format(self.now)], [either]


def _conditions(condition: sql.Composable | None) -> list[sql.Composable]:
    return [] if condition is None else [in_parentheses(condition)]


UNCHANGED_FILTERS = FilterVersions()


def schema_of(input_: Input, *, located: bool = False) -> pa.Schema:
    """Return the Arrow columns of an input's rows; `located`, with column `ROW`."""
    fields = [(leaf.name, leaf.wire.arrow_type) for leaf in input_.leaves]
    fields += [("__before", pa.int64()), ("__after", pa.int64())]
    return pa.schema(fields + ([(ROW, pa.string())] if located else []))


def changes_sql(
    input_: Input, own: BlockNames, filter_versions: FilterVersions = UNCHANGED_FILTERS
) -> sql.Composed:
    """Return the query for the changes that this refresh made to the block that an input reads."""
    assert isinstance(input_.scan.table, BlockRows)
    columns = [column for column in input_.scan.table.columns if column.name in input_.used()]
    changes = own.at(input_.scan.table.block).changes
    images = unstage(columns, changes, sql.SQL("s.__ms_action"))
    return images_sql(input_, images, filter_versions)


def slice_sql(
    input_: Input,
    condition: sql.Composable,
    filter_versions: FilterVersions = UNCHANGED_FILTERS,
    *,
    consolidated: bool = False,
) -> sql.Composed:
    """Return the query for a slice of a source's buffer; `consolidated`, without images that
    cancel.
    """
    table = input_.scan.table
    used = input_.used()
    assert isinstance(table, SourceTable)
    columns = [c for c in table.columns if c.name in used]
    captured = [aliased(slices.column_name(c.attnum), c.name) for c in columns]
    changes = sql.SQL(
        "(SELECT {columns} FROM {buffer} WHERE action IN ('I', 'D') AND {condition})"
    ).format(
        columns=listed([sql.SQL("action AS __ms_action"), *captured]),
        buffer=slices.buffer_name(table.oid),
        condition=condition,
    )
    names = [sql.Identifier(c.name) for c in columns]
    return images_sql(
        input_, _uncancelled(changes, names) if consolidated else changes, filter_versions
    )


def _uncancelled(images: sql.Composable, columns: Sequence[sql.Identifier]) -> sql.Composed:
    """Return a FROM item of images without pairs that cancel.

    A row that was inserted and deleted within the slice is in no result of the query, so an
    expression that raises for it must not be evaluated.
    """
    alike = sql.SQL("PARTITION BY {}").format(row_text(columns))
    count = sql.SQL("count(*) FILTER (WHERE __ms_action = {}) OVER ({})")
    return sql.SQL(
        "(SELECT {columns} FROM (SELECT *, row_number() OVER ({alike}, __ms_action) AS __ms_nth, "
        "least({came}, {went}) AS __ms_pairs FROM {images} AS c) AS n WHERE __ms_nth > __ms_pairs)"
    ).format(
        columns=listed([sql.SQL("__ms_action"), *columns]),
        alike=alike,
        came=count.format("I", alike),
        went=count.format("D", alike),
        images=images,
    )


def step_sql(
    input_: Input, relation: sql.Composable, filter_versions: FilterVersions = UNCHANGED_FILTERS
) -> sql.Composed:
    """Return the query for the rows of a recursion's last step, with their net counts as the counts
    after.
    """
    counts = [sql.Literal(0), sql.SQL("__ms_net")]
    source = from_item(input_.scan, relation)
    return _select(input_, source, counts, _conditions(filter_versions.now), filter_versions)


_BEFORE = sql.SQL("CASE __ms_action WHEN 'I' THEN -1 ELSE 1 END")


def images_sql(
    input_: Input, images: sql.Composable, filter_versions: FilterVersions = UNCHANGED_FILTERS
) -> sql.Composed:
    """Return the query for the images in a relation: of a source, a block or the clock."""
    counts = [_BEFORE, sql.Literal(0)]
    source = from_item(input_.scan, images)
    return _select(input_, source, counts, _conditions(filter_versions.was), filter_versions)


def all_sql(
    input_: Input,
    relation: sql.Composable,
    *,
    before: int,
    where: Sequence[sql.Composable] = (),
    filter_versions: FilterVersions = UNCHANGED_FILTERS,
) -> sql.Composed:
    """Return the query for every row that passes the input's filters; `relation` may hold a part of
    the table.
    """
    counts, passed = filter_versions.stored(before)
    source = from_item(input_.scan, relation)
    return _select(input_, source, counts, [*where, *passed], filter_versions)


def crossing_sql(
    input_: Input, relation: sql.Composable, filter_versions: FilterVersions, *, limit: int
) -> sql.Composed:
    """Return the query for the rows that cross the temporal filters."""
    counts, _ = filter_versions.stored(1)
    assert filter_versions.was is not None
    assert filter_versions.now is not None
    crosses = sql.SQL("(({}) IS TRUE) <> (({}) IS TRUE)").format(
        filter_versions.was, filter_versions.now
    )
    where = [*_conditions(filter_versions.between), crosses]
    source, columns = from_item(input_.scan, relation), [*counts, _located(input_)]
    query = _select(input_, source, columns, where, filter_versions)
    return sql.SQL("{} LIMIT {}").format(query, limit)


@dataclass(frozen=True)
class Lookup:
    """Which rows a lookup returns: those whose leaf columns equal a key."""

    columns: Sequence[str]
    keys: sql.Composable
    """A FROM item __ms_k (k0, k1, ...)."""
    nulls: Sequence[int] = ()
    """Positions of the columns at which a NULL equals a NULL."""


def lookup_sql(
    input_: Input,
    relation: sql.Composable,
    lookup: Lookup,
    *,
    before: int,
    filter_versions: FilterVersions = UNCHANGED_FILTERS,
) -> sql.Composed:
    """Return the query for the rows of a lookup."""
    same = [
        _same(_compared(input_.leaf(column)), sql.Identifier("__ms_k", f"k{n}"), n in lookup.nulls)
        for n, column in enumerate(lookup.columns)
    ]
    item = from_item(input_.scan, relation)
    source = sql.SQL("{keys} JOIN {item} ON {same}").format(
        keys=lookup.keys,
        item=in_parentheses(item) if input_.scan.expansions else item,
        same=all_of(same),
    )
    counts, passed = filter_versions.stored(before)
    return _select(input_, source, [*counts, _located(input_)], passed, filter_versions)


def _located(input_: Input) -> sql.Composed:
    """Return the expression that says where a row is stored, and which row of its expansions it is."""
    row: sql.Composable = sql.Identifier(input_.scan.alias, STANDS)
    if isinstance(input_.scan.table, SourceTable):
        stored = sql.SQL("{alias}.tableoid::text || {alias}.ctid::text")
        row = stored.format(alias=sql.Identifier(input_.scan.alias))
    numbered = sql.SQL("coalesce({}, 0)")
    numbers = [numbered.format(Printed(expansion.number)) for expansion in input_.scan.expansions]
    return sql.SQL(" || '.' || ").join([row, *numbers])


def keys_sql(input_: Input, columns: Sequence[str], relation: sql.Composable) -> sql.Composed:
    """Return a FROM item with each key once, in the types of the leaf columns."""
    keys = [
        aliased(_key(input_.leaf(column), sql.Identifier("__ms_w", f"w{n}")), f"k{n}")
        for n, column in enumerate(columns)
    ]
    return sql.SQL("(SELECT DISTINCT {keys} FROM {relation} AS __ms_w) AS __ms_k").format(
        keys=listed(keys), relation=relation
    )


def _key(leaf: Leaf, value: sql.Identifier) -> sql.Composable:
    # The sender's value may not fit the receiver's type: a bigint joins an integer, numeric(9,4) joins numeric(5,2).
    if leaf.wire.number == "int":
        return value
    if leaf.type.kind == "base" and leaf.type.base in _MODIFIED:
        # In quotes: bare, `bit` means bit(1) and `char` char(1).
        unmodified = sql.Identifier("pg_catalog", leaf.type.base)
        sent = Printed(leaf.wire.decode.format(x=value.as_string()))
        return sql.SQL("({})::{}").format(sent, unmodified)
    return decoded(value, leaf.wire, _compared_type(leaf))


def _compared_type(leaf: Leaf) -> PgType:
    """Return the type in which a leaf is compared: operators do not take a domain over an enum, a
    range or the like.
    """
    return leaf.type.unwrapped() if leaf.type.output else leaf.type


def _compared(leaf: Leaf) -> sql.Composable:
    type_, value = _compared_type(leaf), Printed(leaf.expr.sql)
    if type_ is leaf.type:
        return value
    return sql.SQL("({})::{}").format(value, Printed(type_.name))


def _same(expression: sql.Composable, key: sql.Identifier, nulls: bool) -> sql.Composed:
    if nulls:
        both = sql.SQL("(({value}) = {key} OR (({value}) IS NULL AND {key} IS NULL))")
        return both.format(value=expression, key=key)
    return sql.SQL("({}) = {}").format(expression, key)


def _select(
    input_: Input,
    source: sql.Composable,
    extra: Sequence[sql.Composable],
    where: Sequence[sql.Composable],
    filter_versions: FilterVersions,
) -> sql.Composed:
    filters = [in_parentheses(Printed(condition.sql)) for condition in input_.filters]
    conditions = sql.SQL(" WHERE {}").format(all_of([*filters, *where]))
    return sql.SQL("SELECT {columns} FROM {source}{where}").format(
        columns=listed([*(Printed(leaf.sql) for leaf in input_.leaves), *extra]),
        source=sql.SQL(" CROSS JOIN ").join([source, *filter_versions.items]),
        where=conditions if filters or where else sql.SQL(""),
    )
