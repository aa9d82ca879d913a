"""Queries whose expressions raise errors for rows that their joins discard.

`RandomChanges.strays` puts rows into every table that no row of another table joins, with values at
the ends of their types. Each expression here has a value for every other row, and raises for some
strays.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import Item, RandomTerm, free

# By kind: expressions over a value, and the kind of their result. Of the values in `KINDS` none
# raises.
_RAISING: Mapping[str, tuple[tuple[str, str], ...]] = {
    "int2": (("{x} + 32760::int2", "int2"), ("- {x}", "int2"), ("abs({x})", "int2")),
    "int4": (
        ("{x} * 30000", "int4"), ("- {x} - 3", "int4"), ("abs({x}) + 1", "int4"), ("70 / ({x} - 777)", "int4"),
        ("{x} % ({x} - 777)", "int4"), ("CASE WHEN {x} > 0 THEN {x} + 5 ELSE {x} - 5 END", "int4"),
        ("coalesce({x} * 2, 0)", "int4"), ("CAST({x} AS numeric(9,2))", "money2"),
    ),
    "int8": (("{x} * 900000000", "int8"), ("70 / ({x} - 777)", "int8"), ("- {x} - 3", "int8")),
    "money2": (("70 / ({x} - 777)", "numeric"), ("{x}::int8::int2", "int2")),
    "rate4": (("{x} / ({x} - 777)", "numeric"),),
    "date": (("{x} + 9", "date"), ("{x} - 9", "date")),
}  # fmt: skip
# Of money2, NaN has no integer.
_NOT_NAN = {"money2": "nullif({x}, 'NaN')"}


def discarding(m: Maker) -> str:
    """Return a query over tables that are joined by case, with expressions that raise for strays."""
    # Strays of one table join each other.
    one, other = (m.table(table) for table in m.dice.sample(list(m.tables), 2))
    shape = m.part(
        *["grouped"] * 4, "each once", "condition", "asked", "optional", "united", "counted once"
    )
    return _SHAPES[shape](m, one, other)


def raising(m: Maker, item: Item) -> RandomTerm:
    """Return an expression that raises an error for some strays."""
    term = m.one_of(
        [term for term in free(item.columns) if term.kind in _RAISING and term.name != "id"]
    )
    text, kind = m.one_of(_RAISING[term.kind])
    value = _NOT_NAN.get(term.kind, "{x}").format(x=term.sql)
    return RandomTerm(f"({text.format(x=value)})", kind)


def raising_number(m: Maker, item: Item) -> RandomTerm:
    """Return a number that raises an error for some strays."""
    while (found := raising(m, item)).kind == "date":
        pass
    return found


def _tied(one: Item, other: Item, how: str = "JOIN", also: str = "") -> str:
    tie = f"{one.column('cid').sql} = {other.column('cid').sql}"
    return f"FROM {one.sql} {how} {other.sql} ON {tie}{f' AND {also}' if also else ''}"


def _across(m: Maker, one: Item, other: Item) -> str:
    """Return a condition over both tables that PostgreSQL evaluates for rows of the join only.

    For an equality, or an order of a column that has an index, it may evaluate the other side
    before.
    """
    return (
        f"{raising_number(m, one).sql} {m.one_of(['<', '>=', '<>'])} {raising_number(m, other).sql}"
    )


def _grouped(m: Maker, one: Item, other: Item) -> str:
    by = m.one_of([one.column("j"), other.column("g"), raising(m, one)])
    functions = ["sum", "min", "max", "avg", "count", "count(DISTINCT)", "FILTER"]
    measures = [
        _measure(m, m.one_of([one, other]), m.part(*functions)) for _ in range(m.dice.randint(1, 3))
    ]
    where = f" WHERE {_across(m, one, other)}" if m.chance(0.3) else ""
    listed = ", ".join(f"{text} AS m{place}" for place, text in enumerate(measures))
    case = one.column("cid").sql
    return f"SELECT {case} AS cid, {by.sql} AS k, {listed} {_tied(one, other)}{where} GROUP BY {case}, {by.sql}"


def _measure(m: Maker, item: Item, function: str) -> str:
    number = raising_number(m, item)
    if function == "FILTER":
        return f"count(*) FILTER (WHERE {number.sql} > 5)"
    if function == "count(DISTINCT)":
        return f"count(DISTINCT {number.sql})"
    # Equal numerics may print differently.
    argument = (
        f"trim_scale({number.sql})"
        if function in ("min", "max") and number.kind == "numeric"
        else number.sql
    )
    return f"{function}({argument})"


def _each_once(m: Maker, one: Item, other: Item) -> str:
    return f"SELECT DISTINCT {one.column('cid').sql} AS cid, {raising(m, one).sql} AS x {_tied(one, other)}"


def _condition(m: Maker, one: Item, other: Item) -> str:
    shown = f"{one.column('cid').sql} AS cid, {one.column('id').sql} AS a, {other.column('id').sql} AS b"
    return f"SELECT {shown}, {raising(m, one).sql} AS x {_tied(one, other)} WHERE {_across(m, one, other)}"


def _asked(m: Maker, one: Item, other: Item) -> str:
    tie = f"{other.column('cid').sql} = {one.column('cid').sql}"
    asked = f"EXISTS (SELECT FROM {other.sql} WHERE {tie} AND {_across(m, other, one)})"
    return f"SELECT {one.column('cid').sql} AS cid, {one.column('id').sql} AS id FROM {one.sql} WHERE {asked}"


def _optional(m: Maker, one: Item, other: Item) -> str:
    shown = f"{one.column('cid').sql} AS cid, {one.column('id').sql} AS a, {other.column('id').sql} AS b"
    return f"SELECT {shown} {_tied(one, other, 'LEFT JOIN', _across(m, one, other))}"


def _united(m: Maker, one: Item, other: Item) -> str:
    third = m.table()
    united = m.part("UNION ALL", "UNION")
    column = f"{third.column('cid').sql}, {third.column('j').sql}::numeric"
    part = f"SELECT {one.column('cid').sql} AS cid, {raising_number(m, one).sql}::numeric AS x {_tied(one, other)}"
    return f"{part} {united} SELECT {column} FROM {third.sql}"


def _counted_once(m: Maker, one: Item, other: Item) -> str:
    case = one.column("cid").sql
    listed = (
        f"{case} AS cid, {raising_number(m, one).sql} AS x, {raising_number(m, other).sql} AS y"
    )
    inner = f"SELECT {listed} {_tied(one, other)}"
    return f"SELECT cid, x, count(y) AS n, max(y) - min(y) AS d FROM ({inner}) AS q GROUP BY cid, x"


_SHAPES = {
    "grouped": _grouped, "each once": _each_once, "condition": _condition, "asked": _asked, "optional": _optional,
    "united": _united, "counted once": _counted_once,
}  # fmt: skip
