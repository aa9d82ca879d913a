"""Queries with arithmetic of numerics across tables, in every clause that asks for its value.

`RandomChanges.extremes` gives rows the numbers that Spark has no decimal for: NaN, the infinities,
1e200, 1e-100.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import Item, RandomTerm

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_CONSTANTS = ("0", "2.5", "-1e-100", "1e200", "'NaN'::numeric", "'-Infinity'::numeric")


def numbered(m: Maker) -> str:
    """Return a query over tables that are joined by case, with a number over two of them."""
    one, other = (m.table(table) for table in m.dice.sample(list(m.tables), 2))
    shape = m.part(
        "filtered", "outer join", "full join", "exists", "not exists", "third table", "summed", "grouped", "ordered",
        "null-extended", "united",
    )  # fmt: skip
    return _SHAPES[shape](m, one, other)


def _operand(m: Maker, item: Item) -> str:
    """Return a number of an item, nearly always a numeric."""
    numerics = [term.sql for term in item.columns if term.family == "numeric"]
    return m.one_of([*numerics * 2, f"{item.column('j').sql}::numeric", item.column("h").sql])


def _across(m: Maker, one: Item, other: Item) -> RandomTerm:
    """Return a number over two items."""
    a, b = _operand(m, one), _operand(m, other)
    chosen = f"CASE WHEN {a} > {b} THEN {a} ELSE {b}::numeric END"
    sums = [f"{a} + {b}", f"{a} - {b}", f"- ({a} - {b})", f"{a} + {b} - {_operand(m, one)}"]
    text = m.one_of([*sums, chosen, f"coalesce({a}, {b}::numeric)", *_product(m, one, other)])
    return RandomTerm(f"({text})::numeric", "numeric")


def _product(m: Maker, one: Item, other: Item) -> Sequence[str]:
    """Return products whose digits Spark has a type for; in an outer join all have, and in a filter
    too.
    """
    declared = [
        [term for term in item.columns if term.kind in ("money2", "rate4", "int4")]
        for item in (one, other)
    ]
    return [f"{m.one_of(declared[0]).sql}::numeric * {m.one_of(declared[1]).sql}"] * 2


def _condition(m: Maker, one: Item, other: Item) -> str:
    left = _across(m, one, other)
    right = m.one_of(
        [m.one_of(_CONSTANTS), _operand(m, m.one_of([one, other])), _across(m, other, one).sql]
    )
    plain = f"{left.sql} {m.one_of(_COMPARISONS)} {right}"
    return m.one_of(
        [plain, plain, plain, f"NOT ({plain})", f"{left.sql} IS NULL", f"coalesce({plain}, true)"]
    )


def _tie(one: Item, other: Item) -> str:
    return f"{one.column('cid').sql} = {other.column('cid').sql}"


def _ids(*items: Item) -> str:
    listed = [f"{item.column('id').sql} AS id_{place}" for place, item in enumerate(items)]
    return ", ".join([f"{items[0].column('cid').sql} AS cid", *listed])


def _filtered(m: Maker, one: Item, other: Item) -> str:
    joined = f"{one.sql} JOIN {other.sql} ON {_tie(one, other)}"
    return f"SELECT {_ids(one, other)} FROM {joined} WHERE {_condition(m, one, other)}"


def _outer_join(m: Maker, one: Item, other: Item) -> str:
    on = f"{_tie(one, other)} AND {_condition(m, one, other)}"
    return f"SELECT {_ids(one, other)} FROM {one.sql} {m.one_of(['LEFT', 'RIGHT'])} JOIN {other.sql} ON {on}"


def _full_join(m: Maker, one: Item, other: Item) -> str:
    on = f"{_tie(one, other)} AND {_condition(m, one, other)}"
    return f"SELECT {_ids(one, other)} FROM {one.sql} FULL JOIN {other.sql} ON {on}"


def _exists(m: Maker, one: Item, other: Item, how: str = "EXISTS") -> str:
    asked = f"SELECT FROM {other.sql} WHERE {_tie(one, other)} AND {_condition(m, one, other)}"
    return f"SELECT {_ids(one)} FROM {one.sql} WHERE {how} ({asked})"


def _not_exists(m: Maker, one: Item, other: Item) -> str:
    return _exists(m, one, other, "NOT EXISTS")


def _third_table(m: Maker, one: Item, other: Item) -> str:
    third = m.table()
    joined = (
        f"{one.sql} JOIN {other.sql} ON {_tie(one, other)} JOIN {third.sql} ON {_tie(one, third)}"
    )
    compared = f"{_across(m, one, other).sql} {m.one_of(_COMPARISONS)} {_operand(m, third)}"
    return f"SELECT {_ids(one, other, third)} FROM {joined} WHERE {compared}"


def _summed(m: Maker, one: Item, other: Item) -> str:
    value, case = _across(m, one, other), one.column("cid").sql
    listed = f"sum({value.sql}) AS s, count(*) FILTER (WHERE {_condition(m, one, other)}) AS n"
    having = m.one_of(["", f" HAVING sum({value.sql}) > {m.one_of(_CONSTANTS)}"])
    joined = f"{one.sql} JOIN {other.sql} ON {_tie(one, other)}"
    return f"SELECT {case} AS cid, {listed} FROM {joined} GROUP BY {case}{having}"


def _grouped(m: Maker, one: Item, other: Item) -> str:
    case, key = one.column("cid").sql, f"trim_scale({_across(m, one, other).sql})"
    joined = f"{one.sql} JOIN {other.sql} ON {_tie(one, other)}"
    return f"SELECT {case} AS cid, {key} AS k, count(*) AS n FROM {joined} GROUP BY {case}, {key}"


def _ordered(m: Maker, one: Item, other: Item) -> str:
    rank = (
        f"rank() OVER (PARTITION BY {one.column('cid').sql} ORDER BY {_across(m, one, other).sql})"
    )
    return f"SELECT {_ids(one, other)}, {rank} AS r FROM {one.sql} JOIN {other.sql} ON {_tie(one, other)}"


def _null_extended(m: Maker, one: Item, other: Item) -> str:
    """Return a number over the optional side: NULL where that has no match."""
    third = m.table()
    listed = f"{other.column('cid').sql} AS cid, {_across(m, other, third).sql} AS x"
    inner = f"SELECT {listed} FROM {other.sql} JOIN {third.sql} ON {_tie(other, third)}"
    joined = f"{one.sql} LEFT JOIN ({inner}) AS q ON q.cid = {one.column('cid').sql}"
    if m.chance(0.4):
        measures = f"{m.one_of(['min', 'max'])}(trim_scale(q.x)) AS x, count(q.x) AS n, max(q.x) IS NULL AS none"
        case = one.column("cid").sql
        return f"SELECT {case} AS cid, {measures} FROM {joined} GROUP BY {case}"
    where = m.one_of(
        [f"coalesce(q.x, 0) >= {m.one_of(_CONSTANTS)}", "q.x IS NULL", f"q.x <= {_operand(m, one)}"]
    )
    return f"SELECT {_ids(one)} FROM {joined} WHERE {where}"


def _united(m: Maker, one: Item, other: Item) -> str:
    part = f"SELECT {one.column('cid').sql} AS cid, {_across(m, one, other).sql} AS x"
    joined = f"{one.sql} JOIN {other.sql} ON {_tie(one, other)}"
    third = m.table()
    rest = f"SELECT {third.column('cid').sql}, {third.column('j').sql}::numeric FROM {third.sql}"
    return f"{part} FROM {joined} UNION ALL {rest}"


_SHAPES = {
    "filtered": _filtered, "outer join": _outer_join, "full join": _full_join, "exists": _exists,
    "not exists": _not_exists, "third table": _third_table, "summed": _summed, "grouped": _grouped,
    "ordered": _ordered, "null-extended": _null_extended, "united": _united,
}  # fmt: skip
