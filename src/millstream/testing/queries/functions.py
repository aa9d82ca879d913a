"""Functions in FROM, and in the select list: rows that PostgreSQL makes of the columns of another
item.
"""

from __future__ import annotations

from millstream.testing.queries.conditions import predicate
from millstream.testing.queries.hiding import hiding
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import Body, FromSource, Item, RandomTerm


def spread(m: Maker) -> Body:
    """Return an item, and the rows of a function for each of its rows."""
    one = m.item()
    source = FromSource(one.sql, (one,))
    where = predicate(m, one.columns) if m.chance(0.4) else ""
    if m.chance(0.2):
        m.parts.add("set in the select list")
        shown = {
            "j": RandomTerm(f"unnest({_ints(m, one)})", "int4"),
            "h": one.column("h"),
            "g": one.column("g"),
            **hiding(m, one.columns),
        }
        listed, columns = m.listed(source.case, shown)
        return f"SELECT {listed} {source.text(where)}", columns
    call, value, place = _called(m, one)
    shown = {
        "j": RandomTerm(value, "int4"),
        "h": RandomTerm(place, "int8"),
        "g": one.column("g"),
        "e0": one.column("j"),
    }
    shown |= hiding(m, [*one.columns, RandomTerm(value, "int4")])
    listed, columns = m.listed(source.case, shown)
    both = FromSource(f"{one.sql}{_joined(m, one, call, value)}", (one,))
    more = f"{value} > {one.alias}.h" if m.chance(0.2) else ""
    return f"SELECT {listed} {both.text(where, more)}", columns


def _joined(m: Maker, one: Item, call: str, value: str) -> str:
    how = m.part("function", "CROSS JOIN function", "LEFT JOIN function", "LEFT JOIN function ON")
    if how == "function":
        return f", {call}"
    if how == "CROSS JOIN function":
        return f" CROSS JOIN LATERAL {call}"
    on = "true" if how == "LEFT JOIN function" else f"{value} <> {one.alias}.j"
    return f" LEFT JOIN LATERAL {call} ON {on}"


def _called(m: Maker, one: Item) -> tuple[str, str, str]:
    """Return a function call under an alias, its value as an integer, and the number of its row or
    another one.
    """
    m.aliases += 1
    alias = f"f{m.aliases}"
    name = m.part(
        "unnest", "generate_series", "jsonb_array_elements", "string_to_table", "ROWS FROM"
    )
    text = f"{one.alias}.g"
    calls = {
        "unnest": (f"unnest({_ints(m, one)})", f"{alias}.v"),
        "generate_series": (
            f"generate_series({one.alias}.j, least({one.alias}.h, 4)::int)",
            f"{alias}.v",
        ),
        "jsonb_array_elements": (
            f"jsonb_array_elements({_json(m, one)})",
            f"({alias}.v #>> '{{}}')::int",
        ),
        "string_to_table": (f"string_to_table({text}, 'a')", f"length({alias}.v)"),
        "ROWS FROM": (f"ROWS FROM (unnest({_ints(m, one)}), generate_series(1, 2))", f"{alias}.v"),
    }
    call, value = calls[name]
    if name == "generate_series":
        # From below no more than a handful of rows.
        call = call.replace(f"({one.alias}.j,", f"(greatest({one.alias}.j, 0),")
    names = "v, w" if name == "ROWS FROM" else "v"
    if m.chance(0.5):
        m.parts.add("WITH ORDINALITY")
        return f"{call} WITH ORDINALITY AS {alias} ({names}, n)", value, f"{alias}.n"
    return (
        f"{call} AS {alias} ({names})",
        value,
        f"{alias}.w::bigint" if name == "ROWS FROM" else f"{one.alias}.h::bigint",
    )


def _ints(m: Maker, one: Item) -> str:
    arrays = [term.sql for term in one.columns if term.kind == "ints"]
    j, h = f"{one.alias}.j", f"(CASE WHEN {one.alias}.h < 9 THEN {one.alias}.h END)::int"
    return m.one_of(
        [
            *arrays,
            *arrays,
            f"ARRAY[{j}, {h}]",
            f"ARRAY[{j}, {j}, 1]",
            f"array_remove(ARRAY[{h}], 1)",
        ]
    )


def _json(m: Maker, one: Item) -> str:
    found = [term.sql for term in one.columns if term.kind == "jsonb"]
    nested = [
        f"CASE WHEN jsonb_typeof({term} -> 'a') = 'array' THEN {term} -> 'a' END" for term in found
    ]
    return m.one_of([*nested, f"jsonb_build_array({one.alias}.j, 2, {one.alias}.j)"])
