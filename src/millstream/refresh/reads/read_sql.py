"""The SQL that reads an input: its slice of changes, its rows by key, or all of it.

All three select the same leaf columns, so what is read one way cannot differ from what is read
another. A row that stands in the table counts (1, 1) before and after; an image of the slice
corrects `before`. Where a moving filter says one thing of a row before and another after, it counts
in the version that it passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from millstream.algebra.block import Input, Leaf
from millstream.algebra.table import ROW as STANDS
from millstream.algebra.table import quoted
from millstream.algebra.types import PgType
from millstream.capture.buffer import slices
from millstream.store.names import BlockNames
from millstream.store.staging_columns import unstage

ROW = "__row"
"""Where a row is stored: tells it apart from others read in the same snapshot."""

# Types whose modifier cuts or rounds.
_MODIFIED = frozenset({"numeric", "bpchar", "varchar", "bit", "varbit", "time", "timestamp", "timestamptz"})


@dataclass(frozen=True)
class FilterVersions:
    """The moving filters of an input in one refresh."""

    items: tuple[str, ...] = ()
    """FROM items: the single rows they look at."""
    was: str = ""
    now: str = ""
    between: str = ""
    """What flipped rows meet, for an index; empty where that is not known."""

    @property
    def flips(self) -> bool:
        """May they say one thing of a row before and another after?"""
        return self.was != self.now

    def stored(self, before: int) -> tuple[list[str], list[str]]:
        """How often a stored row counts before and after, and the condition for it to be read."""
        if not self.flips or before == 0:
            return [str(before), "1"], [f"({self.now})"] if self.now else []
        counts = [f"CASE WHEN {passed} THEN 1 ELSE 0 END" for passed in (self.was, self.now)]
        return counts, [f"(({self.was}) OR ({self.now}))"]


UNCHANGED_FILTERS = FilterVersions()


def schema_of(one: Input, *, located: bool = False) -> pa.Schema:
    """The Arrow columns of an input's rows."""
    fields = [(leaf.name, leaf.wire.arrow_type) for leaf in one.leaves]
    fields += [("__before", pa.int64()), ("__after", pa.int64())]
    return pa.schema(fields + ([(ROW, pa.string())] if located else []))


def changes_sql(one: Input, own: BlockNames, filter_versions: FilterVersions = UNCHANGED_FILTERS) -> str:
    """What this refresh did to the block that an input reads."""
    assert one.scan.table.block is not None
    columns = [column for column in one.scan.table.columns if column.name in one.used()]
    images = unstage(columns, own.at(one.scan.table.block).changes, "s.__ms_action")
    return images_sql(one, images, filter_versions)


def slice_sql(
    one: Input, condition: str, filter_versions: FilterVersions = UNCHANGED_FILTERS, *, consolidated: bool = False
) -> str:
    """The images in a source's buffer that meet the condition of a slice; `netted`, without those that cancel."""
    table = one.scan.table
    used = one.used()
    columns = [c for c in table.columns if c.name in used]
    listed = "".join(f", {slices.column_name(c.attnum).as_string()} AS {quoted(c.name)}" for c in columns)
    changes = (
        f"(SELECT action AS __ms_action{listed} FROM {slices.buffer_name(table.oid).as_string()}"
        f" WHERE action IN ('I', 'D') AND {condition})"
    )
    return images_sql(
        one, _uncancelled(changes, [quoted(c.name) for c in columns]) if consolidated else changes, filter_versions
    )


def _uncancelled(images: str, columns: Sequence[str]) -> str:
    """Images without those of rows that came and went: an expression may fail for such a row, and for no other."""
    alike = f"PARTITION BY ROW({', '.join(columns)})::text"
    came, went = (f"count(*) FILTER (WHERE __ms_action = '{action}') OVER ({alike})" for action in "ID")
    numbered = f"row_number() OVER ({alike}, __ms_action) AS __ms_nth, least({came}, {went}) AS __ms_pairs"
    listed = "".join(f", {column}" for column in columns)
    return (
        f"(SELECT __ms_action{listed} FROM (SELECT *, {numbered} FROM {images} AS c) AS n WHERE __ms_nth > __ms_pairs)"
    )


def step_sql(one: Input, relation: str, filter_versions: FilterVersions = UNCHANGED_FILTERS) -> str:
    """The rows of a recursion's last step, as its own term reads them: as often as they came, not as they were."""
    passed = [f"({filter_versions.now})"] if filter_versions.now else []
    return _select(one, one.scan.item(relation), ["0", "__ms_net"], passed, filter_versions)


_BEFORE = "CASE __ms_action WHEN 'I' THEN -1 ELSE 1 END"


def images_sql(one: Input, images: str, filter_versions: FilterVersions = UNCHANGED_FILTERS) -> str:
    """The same of images that stand in a relation: of a block, or of the clock."""
    passed = [f"({filter_versions.was})"] if filter_versions.was else []
    return _select(one, one.scan.item(images), [_BEFORE, "0"], passed, filter_versions)


def all_sql(
    one: Input,
    relation: str,
    *,
    before: int,
    where: Sequence[str] = (),
    filter_versions: FilterVersions = UNCHANGED_FILTERS,
) -> str:
    """Every row that passes the input's filters, of its relation or of one that holds part of it."""
    counts, passed = filter_versions.stored(before)
    return _select(one, one.scan.item(relation), counts, [*where, *passed], filter_versions)


def crossing_sql(one: Input, relation: str, filter_versions: FilterVersions, *, limit: int) -> str:
    """The rows of which the moving filters say one thing before and another after."""
    counts, _ = filter_versions.stored(1)
    where = [f"({filter_versions.between})"] if filter_versions.between else []
    where.append(f"(({filter_versions.was}) IS TRUE) <> (({filter_versions.now}) IS TRUE)")
    return _select(one, one.scan.item(relation), [*counts, _located(one)], where, filter_versions) + f" LIMIT {limit}"


def lookup_sql(
    one: Input,
    relation: str,
    columns: Sequence[str],
    keys: str,
    *,
    before: int,
    nulls: Sequence[int],
    limit: int,
    filter_versions: FilterVersions = UNCHANGED_FILTERS,
) -> str:
    """The rows whose leaf columns equal one of the keys; `keys` is a FROM item `k` with columns k0, k1, ..."""
    same = [_same(_compared(one.leaf(column)), f"__ms_k.k{n}", n in nulls) for n, column in enumerate(columns)]
    item = one.scan.item(relation)
    source = f"{keys} JOIN {f'({item})' if one.scan.expansions else item} ON {' AND '.join(same)}"
    counts, passed = filter_versions.stored(before)
    return _select(one, source, [*counts, _located(one)], passed, filter_versions) + f" LIMIT {limit}"


def _located(one: Input) -> str:
    """Where a row is stored."""
    alias = quoted(one.scan.alias)
    stored = f"{alias}.tableoid::text || {alias}.ctid::text"
    rows = [stored if one.scan.table.stored else f"{alias}.{STANDS}"]
    return " || '.' || ".join([*rows, *(f"coalesce({made.number}, 0)" for made in one.scan.expansions)])


def keys_sql(one: Input, columns: Sequence[str], relation: str) -> str:
    """A FROM item that gives the keys in the types of the leaf columns, each once."""
    decoded = [f"{_key(one.leaf(column), f'__ms_w.w{n}')} AS k{n}" for n, column in enumerate(columns)]
    return f"(SELECT DISTINCT {', '.join(decoded)} FROM {relation} AS __ms_w) AS __ms_k"


def _key(leaf: Leaf, value: str) -> str:
    # The sender's value may not fit the receiver's own type: a bigint meets an integer, numeric(9,4) a numeric(5,2).
    if leaf.wire.number == "int":
        return value
    if leaf.type.kind == "base" and leaf.type.base in _MODIFIED:
        # In quotes: bare, `bit` means bit(1) and `char` char(1).
        return f"({leaf.wire.decode.format(x=value)})::pg_catalog.{quoted(leaf.type.base)}"
    return leaf.wire.decode_sql(value, _compared_type(leaf))


def _compared_type(leaf: Leaf) -> PgType:
    """The type that a leaf is compared in: no operator takes a domain over an enum, a range or the like."""
    return leaf.type.unwrapped() if leaf.type.output else leaf.type


def _compared(leaf: Leaf) -> str:
    type_ = _compared_type(leaf)
    return leaf.expr.sql if type_ is leaf.type else f"({leaf.expr.sql})::{type_.name}"


def _same(expression: str, key: str, nulls: bool) -> str:
    if nulls:
        return f"(({expression}) = {key} OR (({expression}) IS NULL AND {key} IS NULL))"
    return f"({expression}) = {key}"


def _select(
    one: Input, source: str, extra: Sequence[str], where: Sequence[str], filter_versions: FilterVersions
) -> str:
    columns = ", ".join([*(leaf.sql for leaf in one.leaves), *extra])
    source = " CROSS JOIN ".join([source, *filter_versions.items])
    conditions = [f"({condition.sql})" for condition in one.filters] + list(where)
    tail = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {columns} FROM {source}{tail}"
