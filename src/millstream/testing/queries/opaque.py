"""Queries that join tables by conditions that only PostgreSQL can evaluate, in every kind of join.

Half of them have an equality beside the condition, besides that of the case.
"""

from __future__ import annotations

from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import Item


def paired(m: Maker) -> str:
    """Return a query over two or three tables of a cased schema, joined by such a condition."""
    one, other = m.table(), m.table()
    shape = m.part("opaque inner", "opaque left", "opaque full", "opaque exists", "opaque not exists",
                   "opaque not in", "opaque scalar", "opaque lateral", "opaque groups", "opaque third")  # fmt: skip
    return _SHAPES[shape](m, one, other)


def _condition(m: Maker, one: Item, other: Item) -> str:
    """Return a condition over two items that Spark does not evaluate."""
    a, b = (item.column("g").sql for item in (one, other))
    i, k = (item.column("j").sql for item in (one, other))
    choices = {
        "LIKE of columns": f"{a} LIKE '%' || {b} || '%'",
        "regular expression of columns": f"{a} ~* ('^' || left({b}, 1))",
        "prefix": f"starts_with({a}, {b})",
        "range of columns": f"int4range(least({i}, 2), 3) @> {k}",
        "overlapping ranges": f"int4range({i}, {i} + 2) && int4range({k}, {k} + 2)",
        "overlapping arrays": f"ARRAY[{i}, 1] && ARRAY[{k}, 70000]",
        "date and timestamp": f"date '2020-01-01' + {i} < timestamp '2020-01-02' + {k} * interval '1 day'",
        "geometry": f"point({i}, 1) <@ circle(point({k}, 1), 2)",
    }
    plain = choices[m.part(*choices)]
    return m.one_of(
        [plain, plain, f"NOT ({plain})", f"({plain} OR {i} = 2)", f"coalesce({plain}, {i} = 1)"]
    )


def _on(m: Maker, one: Item, other: Item) -> str:
    parts = [f"{one.column('cid').sql} = {other.column('cid').sql}"]
    if m.chance(0.3):
        parts.append(f"{one.column('j').sql} = {other.column('h').sql}")
    return " AND ".join([*parts, _condition(m, one, other)])


def _ids(*items: Item) -> str:
    listed = [f"{item.column('id').sql} AS id_{place}" for place, item in enumerate(items)]
    return ", ".join([f"{items[0].column('cid').sql} AS cid", *listed])


def _inner(m: Maker, one: Item, other: Item) -> str:
    return f"SELECT {_ids(one, other)} FROM {one.sql} JOIN {other.sql} ON {_on(m, one, other)}"


def _left(m: Maker, one: Item, other: Item) -> str:
    side = m.one_of(["LEFT", "RIGHT"])
    return (
        f"SELECT {_ids(one, other)} FROM {one.sql} {side} JOIN {other.sql} ON {_on(m, one, other)}"
    )


def _full(m: Maker, one: Item, other: Item) -> str:
    keyed = [table for table in m.tables if table.key] or list(m.tables)
    one, other = (m.table(m.one_of(keyed)) for _ in range(2))
    return f"SELECT {_ids(one, other)} FROM {one.sql} FULL JOIN {other.sql} ON {_on(m, one, other)}"


def _exists(m: Maker, one: Item, other: Item, how: str = "EXISTS") -> str:
    asked = f"SELECT FROM {other.sql} WHERE {_on(m, one, other)}"
    return f"SELECT {_ids(one)} FROM {one.sql} WHERE {how} ({asked})"


def _not_exists(m: Maker, one: Item, other: Item) -> str:
    return _exists(m, one, other, "NOT EXISTS")


def _not_in(m: Maker, one: Item, other: Item) -> str:
    asked = f"SELECT {other.column('j').sql} FROM {other.sql} WHERE {_on(m, one, other)}"
    return f"SELECT {_ids(one)} FROM {one.sql} WHERE {one.column('j').sql} {m.one_of(['IN', 'NOT IN'])} ({asked})"


def _scalar(m: Maker, one: Item, other: Item) -> str:
    value = f"{m.one_of(['min', 'max', 'count'])}({other.column('j').sql})"
    return f"SELECT {_ids(one)}, (SELECT {value} FROM {other.sql} WHERE {_on(m, one, other)}) AS x FROM {one.sql}"


def _lateral(m: Maker, one: Item, other: Item) -> str:
    inner = f"SELECT {other.column('id').sql} AS id FROM {other.sql} WHERE {_on(m, one, other)}"
    return f"SELECT {_ids(one)}, l.id AS other FROM {one.sql}, LATERAL ({inner}) AS l"


def _groups(m: Maker, one: Item, other: Item) -> str:
    case = one.column("cid").sql
    joined = f"{one.sql} {m.one_of(['JOIN', 'LEFT JOIN'])} {other.sql} ON {_on(m, one, other)}"
    return (
        f"SELECT {case} AS cid, count({other.column('id').sql}) AS n FROM {joined} GROUP BY {case}"
    )


def _third(m: Maker, one: Item, other: Item) -> str:
    third = m.table()
    tie = f"{third.column('cid').sql} = {one.column('cid').sql} AND {third.column('j').sql} = {one.column('j').sql}"
    kind = m.one_of(["JOIN", "LEFT JOIN"])
    joined = f"{one.sql} JOIN {third.sql} ON {tie} {kind} {other.sql} ON {_on(m, one, other)}"
    return f"SELECT {_ids(one, other, third)} FROM {joined}"


_SHAPES = {
    "opaque inner": _inner, "opaque left": _left, "opaque full": _full, "opaque exists": _exists,
    "opaque not exists": _not_exists, "opaque not in": _not_in, "opaque scalar": _scalar,
    "opaque lateral": _lateral, "opaque groups": _groups, "opaque third": _third,
}  # fmt: skip
