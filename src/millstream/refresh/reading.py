"""The SQL that reads an input: its slice of changes, its rows by key, or all of it.

All three select the same leaf columns, so what is read one way cannot differ from what is read
another. A row that stands in the table counts (1, 1) before and after; an image of the slice
corrects `before`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millstream.algebra.table import ROW as STANDS
from millstream.algebra.table import quoted
from millstream.capture import buffer
from millstream.frontier.snapshot import Snapshot
from millstream.plan.block import Input, Leaf
from millstream.store.names import Names

ROW = "__row"
"""Where a row is stored: tells it apart from others read in the same snapshot."""

# Types whose modifier cuts or rounds.
_MODIFIED = frozenset({"numeric", "bpchar", "varchar", "bit", "varbit", "time", "timestamp", "timestamptz"})


def schema_of(one: Input, *, located: bool = False) -> pa.Schema:
    """The Arrow columns of an input's rows."""
    fields = [(leaf.name, leaf.wire.arrow_type) for leaf in one.leaves]
    fields += [("__before", pa.int64()), ("__after", pa.int64())]
    return pa.schema(fields + ([(ROW, pa.string())] if located else []))


def slice_sql(one: Input, frontier: Snapshot, own: Names) -> str:
    """The images between the frontier and the snapshot of the transaction that runs this."""
    table = one.scan.table
    if table.block is not None:
        return _select(one, one.scan.item(own.at(table.block).changes), [_BEFORE, "0"], [])
    used = one.used()
    columns = [c for c in table.columns if c.name in used]
    listed = "".join(f", {buffer.column_name(c.attnum).as_string()} AS {quoted(c.name)}" for c in columns)
    changes = (
        f"(SELECT action AS __ms_action{listed} FROM {buffer.buffer_name(table.oid).as_string()}"
        f" WHERE action IN ('I', 'D') AND {buffer.slice_condition(frontier).as_string()})"
    )
    return _select(one, one.scan.item(changes), [_BEFORE, "0"], [])


def step_sql(one: Input, relation: str) -> str:
    """The rows of a recursion's last step, as its own term reads them: as often as they came, not as they were."""
    return _select(one, one.scan.item(relation), ["0", "__ms_net"], [])


_BEFORE = "CASE __ms_action WHEN 'I' THEN -1 ELSE 1 END"


def all_sql(one: Input, relation: str, *, before: int, where: Sequence[str] = ()) -> str:
    """Every row that passes the input's filters, of its relation or of one that holds part of it."""
    return _select(one, one.scan.item(relation), [str(before), "1"], where)


def lookup_sql(
    one: Input, relation: str, columns: Sequence[str], keys: str, *, before: int, nulls: Sequence[int], limit: int
) -> str:
    """The rows whose leaf columns equal one of the keys; `keys` is a FROM item `k` with columns k0, k1, ..."""
    alias = quoted(one.scan.alias)
    same = [_same(one.leaf(column).expr.sql, f"__ms_k.k{n}", n in nulls) for n, column in enumerate(columns)]
    item = one.scan.item(relation)
    source = f"{keys} JOIN {f'({item})' if one.scan.expansions else item} ON {' AND '.join(same)}"
    stored = f"{alias}.tableoid::text || {alias}.ctid::text"
    rows = [stored if one.scan.table.stored else f"{alias}.{STANDS}"]
    row = " || '.' || ".join([*rows, *(f"coalesce({made.number}, 0)" for made in one.scan.expansions)])
    return _select(one, source, [str(before), "1", row], []) + f" LIMIT {limit}"


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
    return leaf.wire.decode_sql(value, leaf.type)


def _same(expression: str, key: str, nulls: bool) -> str:
    if nulls:
        return f"(({expression}) = {key} OR (({expression}) IS NULL AND {key} IS NULL))"
    return f"({expression}) = {key}"


def _select(one: Input, source: str, extra: Sequence[str], where: Sequence[str]) -> str:
    columns = ", ".join([*(leaf.sql for leaf in one.leaves), *extra])
    conditions = [f"({condition.sql})" for condition in one.filters] + list(where)
    tail = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {columns} FROM {source}{tail}"
