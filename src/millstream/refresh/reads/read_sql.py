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
from millstream.algebra.table import BlockRows, SourceTable, quoted
from millstream.algebra.types import PgType
from millstream.capture.buffer import slices
from millstream.store.names import BlockNames
from millstream.store.staging_columns import unstage

ROW = "__row"
"""The column that says where a row is stored: it identifies the row within a snapshot."""

# Types whose modifier truncates or rounds a value.
_MODIFIED = frozenset(
    {"numeric", "bpchar", "varchar", "bit", "varbit", "time", "timestamp", "timestamptz"}
)


@dataclass(frozen=True)
class FilterVersions:
    """The temporal filters of an input, as conditions before and after one refresh."""

    items: tuple[str, ...] = ()
    """FROM items: the single rows that the conditions read."""
    was: str = ""
    now: str = ""
    between: str = ""
    """A condition that all crossing rows satisfy, for an index; empty if none is known."""

    @property
    def may_cross(self) -> bool:
        """True if a row may pass the filters in one version and not in the other."""
        return self.was != self.now

    def stored(self, before: int) -> tuple[list[str], list[str]]:
        """Return the counts of a stored row, before and after, and the conditions under which it is
        read.
        """
        if not self.may_cross or before == 0:
            return [str(before), "1"], [f"({self.now})"] if self.now else []
        counts = [f"CASE WHEN {passed} THEN 1 ELSE 0 END" for passed in (self.was, self.now)]
        return counts, [f"(({self.was}) OR ({self.now}))"]


UNCHANGED_FILTERS = FilterVersions()


def schema_of(input_: Input, *, located: bool = False) -> pa.Schema:
    """Return the Arrow columns of an input's rows; `located`, with column `ROW`."""
    fields = [(leaf.name, leaf.wire.arrow_type) for leaf in input_.leaves]
    fields += [("__before", pa.int64()), ("__after", pa.int64())]
    return pa.schema(fields + ([(ROW, pa.string())] if located else []))


def changes_sql(
    input_: Input, own: BlockNames, filter_versions: FilterVersions = UNCHANGED_FILTERS
) -> str:
    """Return the query for the changes that this refresh made to the block that an input reads."""
    assert isinstance(input_.scan.table, BlockRows)
    columns = [column for column in input_.scan.table.columns if column.name in input_.used()]
    changes = own.at(input_.scan.table.block).changes
    images = unstage(columns, changes, sql.SQL("s.__ms_action"))
    return images_sql(input_, images.as_string(), filter_versions)


def slice_sql(
    input_: Input,
    condition: str,
    filter_versions: FilterVersions = UNCHANGED_FILTERS,
    *,
    consolidated: bool = False,
) -> str:
    """Return the query for a slice of a source's buffer; `consolidated`, without images that
    cancel.
    """
    table = input_.scan.table
    used = input_.used()
    assert isinstance(table, SourceTable)
    columns = [c for c in table.columns if c.name in used]
    listed = "".join(
        f", {slices.column_name(c.attnum).as_string()} AS {quoted(c.name)}" for c in columns
    )
    changes = (
        f"(SELECT action AS __ms_action{listed} FROM {slices.buffer_name(table.oid).as_string()}"
        f" WHERE action IN ('I', 'D') AND {condition})"
    )
    return images_sql(
        input_,
        _uncancelled(changes, [quoted(c.name) for c in columns]) if consolidated else changes,
        filter_versions,
    )


def _uncancelled(images: str, columns: Sequence[str]) -> str:
    """Return a FROM item of images without pairs that cancel.

    A row that was inserted and deleted within the slice is in no result of the query, so an
    expression that raises for it must not be evaluated.
    """
    alike = f"PARTITION BY ROW({', '.join(columns)})::text"
    came, went = (
        f"count(*) FILTER (WHERE __ms_action = '{action}') OVER ({alike})" for action in "ID"
    )
    numbered = (
        f"row_number() OVER ({alike}, __ms_action) AS __ms_nth, least({came}, {went}) AS __ms_pairs"
    )
    listed = "".join(f", {column}" for column in columns)
    return (
        f"(SELECT __ms_action{listed} FROM (SELECT *, {numbered} FROM "
        f"{images} AS c) AS n WHERE __ms_nth > __ms_pairs)"
    )


def step_sql(
    input_: Input, relation: str, filter_versions: FilterVersions = UNCHANGED_FILTERS
) -> str:
    """Return the query for the rows of a recursion's last step, with their net counts as the counts
    after.
    """
    passed = [f"({filter_versions.now})"] if filter_versions.now else []
    return _select(input_, input_.scan.item(relation), ["0", "__ms_net"], passed, filter_versions)


_BEFORE = "CASE __ms_action WHEN 'I' THEN -1 ELSE 1 END"


def images_sql(
    input_: Input, images: str, filter_versions: FilterVersions = UNCHANGED_FILTERS
) -> str:
    """Return the query for the images in a relation: of a source, a block or the clock."""
    passed = [f"({filter_versions.was})"] if filter_versions.was else []
    return _select(input_, input_.scan.item(images), [_BEFORE, "0"], passed, filter_versions)


def all_sql(
    input_: Input,
    relation: str,
    *,
    before: int,
    where: Sequence[str] = (),
    filter_versions: FilterVersions = UNCHANGED_FILTERS,
) -> str:
    """Return the query for every row that passes the input's filters; `relation` may hold a part of
    the table.
    """
    counts, passed = filter_versions.stored(before)
    return _select(input_, input_.scan.item(relation), counts, [*where, *passed], filter_versions)


def crossing_sql(
    input_: Input, relation: str, filter_versions: FilterVersions, *, limit: int
) -> str:
    """Return the query for the rows that cross the temporal filters."""
    counts, _ = filter_versions.stored(1)
    where = [f"({filter_versions.between})"] if filter_versions.between else []
    where.append(f"(({filter_versions.was}) IS TRUE) <> (({filter_versions.now}) IS TRUE)")
    return (
        _select(
            input_, input_.scan.item(relation), [*counts, _located(input_)], where, filter_versions
        )
        + f" LIMIT {limit}"
    )


@dataclass(frozen=True)
class Lookup:
    """Which rows a lookup returns: those whose leaf columns equal a key."""

    columns: Sequence[str]
    keys: str
    """A FROM item __ms_k (k0, k1, ...)."""
    nulls: Sequence[int] = ()
    """Positions of the columns at which a NULL equals a NULL."""


def lookup_sql(
    input_: Input,
    relation: str,
    lookup: Lookup,
    *,
    before: int,
    filter_versions: FilterVersions = UNCHANGED_FILTERS,
) -> str:
    """Return the query for the rows of a lookup."""
    expressions = [_compared(input_.leaf(column)) for column in lookup.columns]
    same = [_same(each, f"__ms_k.k{n}", n in lookup.nulls) for n, each in enumerate(expressions)]
    item = input_.scan.item(relation)
    source = f"{lookup.keys} JOIN {f'({item})' if input_.scan.expansions else item} ON {' AND '.join(same)}"
    counts, passed = filter_versions.stored(before)
    return _select(input_, source, [*counts, _located(input_)], passed, filter_versions)


def _located(input_: Input) -> str:
    """Return the expression that says where a row is stored, and which row of its expansions it is."""
    alias = quoted(input_.scan.alias)
    stored = f"{alias}.tableoid::text || {alias}.ctid::text"
    rows = [stored if isinstance(input_.scan.table, SourceTable) else f"{alias}.{STANDS}"]
    return " || '.' || ".join(
        [*rows, *(f"coalesce({expansion.number}, 0)" for expansion in input_.scan.expansions)]
    )


def keys_sql(input_: Input, columns: Sequence[str], relation: str) -> str:
    """Return a FROM item with each key once, in the types of the leaf columns."""
    decoded = [
        f"{_key(input_.leaf(column), f'__ms_w.w{n}')} AS k{n}" for n, column in enumerate(columns)
    ]
    return f"(SELECT DISTINCT {', '.join(decoded)} FROM {relation} AS __ms_w) AS __ms_k"


def _key(leaf: Leaf, value: str) -> str:
    # The sender's value may not fit the receiver's type: a bigint joins an integer, numeric(9,4) joins numeric(5,2).
    if leaf.wire.number == "int":
        return value
    if leaf.type.kind == "base" and leaf.type.base in _MODIFIED:
        # In quotes: bare, `bit` means bit(1) and `char` char(1).
        return f"({leaf.wire.decode.format(x=value)})::pg_catalog.{quoted(leaf.type.base)}"
    return leaf.wire.decode_sql(value, _compared_type(leaf))


def _compared_type(leaf: Leaf) -> PgType:
    """Return the type in which a leaf is compared: operators do not take a domain over an enum, a
    range or the like.
    """
    return leaf.type.unwrapped() if leaf.type.output else leaf.type


def _compared(leaf: Leaf) -> str:
    type_ = _compared_type(leaf)
    return leaf.expr.sql if type_ is leaf.type else f"({leaf.expr.sql})::{type_.name}"


def _same(expression: str, key: str, nulls: bool) -> str:
    if nulls:
        return f"(({expression}) = {key} OR (({expression}) IS NULL AND {key} IS NULL))"
    return f"({expression}) = {key}"


def _select(
    input_: Input,
    source: str,
    extra: Sequence[str],
    where: Sequence[str],
    filter_versions: FilterVersions,
) -> str:
    columns = ", ".join([*(leaf.sql for leaf in input_.leaves), *extra])
    source = " CROSS JOIN ".join([source, *filter_versions.items])
    conditions = [f"({condition.sql})" for condition in input_.filters] + list(where)
    tail = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {columns} FROM {source}{tail}"
