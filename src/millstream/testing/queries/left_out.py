"""Queries whose expressions raise errors for rows that LIMIT, or a filter further out, leaves out.

The strays of `RandomChanges.strays` have negative cases: they come last, or are dropped by `cid >
0`.
"""

from __future__ import annotations

from millstream.testing.queries.discarded import raising, raising_number
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import Item


def leaving_out(m: Maker) -> str:
    """Return a query over tables with strays that it does not show."""
    keyed = [table for table in m.tables if table.key] or list(m.tables)
    one = m.table(m.one_of(keyed))
    other = m.table(one.table)
    shape = m.part(
        "limited",
        "limited inside",
        "lateral limit",
        "groups",
        "each once",
        "partitions",
        "subquery groups",
    )
    return _SHAPES[shape](m, one, other)


def _of_several_rows(one: Item, other: Item) -> str:
    """Return a scalar subquery over the same table, of one row; for a stray of all that stray with
    it.
    """
    a, b = (item.column("cid").sql for item in (one, other))
    once = f"{other.column('id').sql} = {one.column('id').sql}"
    return (
        f"(SELECT {other.column('j').sql} FROM {other.sql} WHERE {b} = {a} AND ({once} OR {a} < 0))"
    )


def _sorted(one: Item) -> str:
    return f"ORDER BY {one.column('cid').sql} DESC, {one.column('id').sql}"


def _shown(one: Item) -> str:
    return f"{one.column('cid').sql} AS cid, {one.column('id').sql} AS id"


def _limited(m: Maker, one: Item, other: Item) -> str:
    value = m.one_of(["{x}", "coalesce({x}, 7)", "{x} + 1"]).format(x=_of_several_rows(one, other))
    return f"SELECT {_shown(one)}, {value} AS x FROM {one.sql} {_sorted(one)} LIMIT {m.dice.randint(5, 60)}"


def _limited_inside(m: Maker, one: Item, other: Item) -> str:
    inner = _limited(m, one, other)
    return f"SELECT q.cid, count(q.x) AS n, max(q.x) AS most FROM ({inner}) AS q GROUP BY q.cid"


def _lateral_limit(m: Maker, one: Item, other: Item) -> str:
    """Return the first rows of each case; of a stray's case none are asked for."""
    third = m.table(one.table)
    inner = f"SELECT {other.column('id').sql} AS id, {_of_several_rows(other, third)} AS x FROM {other.sql}"
    tie = f"{other.column('cid').sql} = {one.column('cid').sql} AND {one.column('cid').sql} > 0"
    lateral = f"{inner} WHERE {tie} ORDER BY {other.column('id').sql} LIMIT 2"
    return f"SELECT {_shown(one)}, l.id AS other, l.x FROM {one.sql}, LATERAL ({lateral}) AS l"


def _groups(m: Maker, one: Item, other: Item) -> str:
    case, number = one.column("cid").sql, raising_number(m, one).sql
    function = m.one_of(["count", "sum"])
    inner = f"SELECT {case} AS cid, {function}({number}) AS x FROM {one.sql} GROUP BY {case}"
    return f"SELECT q.cid, q.x FROM ({inner}) AS q WHERE q.cid > 0"


def _each_once(m: Maker, one: Item, other: Item) -> str:
    inner = (
        f"SELECT DISTINCT {one.column('cid').sql} AS cid, {raising(m, one).sql} AS x FROM {one.sql}"
    )
    return f"SELECT q.cid, q.x FROM ({inner}) AS q WHERE q.cid > 0"


def _partitions(m: Maker, one: Item, other: Item) -> str:
    case, number = one.column("cid").sql, raising_number(m, one).sql
    inner = f"SELECT {_shown(one)}, count({number}) OVER (PARTITION BY {case}) AS x FROM {one.sql}"
    return f"SELECT q.cid, q.id, q.x FROM ({inner}) AS q WHERE q.cid > 0"


def _subquery_groups(m: Maker, one: Item, other: Item) -> str:
    case = one.column("cid").sql
    inner = f"SELECT {case} AS cid, max({_of_several_rows(one, other)}) AS x FROM {one.sql} GROUP BY {case}"
    return f"SELECT q.cid, q.x FROM ({inner}) AS q WHERE q.cid > 0"


_SHAPES = {
    "limited": _limited, "limited inside": _limited_inside, "lateral limit": _lateral_limit, "groups": _groups,
    "each once": _each_once, "partitions": _partitions, "subquery groups": _subquery_groups,
}  # fmt: skip
