"""Recursive queries that end: by UNION over what there is, by UNION ALL down to a depth; with
SEARCH and CYCLE.
"""

from __future__ import annotations

from millstream.testing.queries.conditions import predicate
from millstream.testing.queries.hiding import CONSTANT_KINDS, constant
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import Body, FromSource, Item, RandomTerm


def recursive(m: Maker) -> Body:
    """Return the rows of an item, and those of another that they lead to."""
    one, other = m.item(), m.item()
    m.aliases += 1
    name = f"r{m.aliases}"
    union = m.part("recursive UNION", "recursive UNION ALL").removeprefix("recursive ")
    depth = union == "UNION ALL" or m.chance(0.3)
    case = FromSource(one.sql, (one,)).case
    tag = m.one_of(CONSTANT_KINDS)
    listed, columns = m.listed(case, {**_shown(one, "0", depth), "k0": constant(m, tag)})
    base = f"SELECT {listed} {FromSource(one.sql, (one,)).text(predicate(m, one.columns) if m.chance(0.5) else '')}"
    step, _ = m.listed(f"{name}.cid", {**_led_to(m, name, other, depth), "k0": constant(m, tag)})
    tie = f"{other.alias}.{m.one_of(['j', 'h'])} = {name}.{m.one_of(['j', 'j', 'h'])}"
    on = f"{f'{other.alias}.cid = {name}.cid AND ' if m.cased else ''}{tie}"
    ends = f"{name}.e0 < 2" if depth else ""
    rows = FromSource(f"{name} JOIN {other.sql} ON {on}", ()).text(
        ends, predicate(m, other.columns) if m.chance(0.4) else ""
    )
    chosen = ", ".join(column for column, _ in columns)
    # With a path in it no row is equal to another, and UNION would not end.
    clause, more, shown = _clauses(m, name) if depth else ("", "", [])
    text = f"WITH RECURSIVE {name} AS ({base} {union} SELECT {step} {rows}){clause} SELECT {chosen}{more} FROM {name}"
    return text, [*columns, *shown]


def _shown(one: Item, depth: str, deep: bool) -> dict[str, RandomTerm]:
    shown = {
        "j": one.column("j"),
        "h": RandomTerm(f"{one.alias}.h::bigint", "int8"),
        "g": one.column("g"),
    }
    return {**shown, **({"e0": RandomTerm(depth, "int4")} if deep else {})}


def _led_to(m: Maker, name: str, other: Item, deep: bool) -> dict[str, RandomTerm]:
    shown = _shown(other, f"{name}.e0 + 1", deep)
    kept = [column for column in "hg" if m.chance(0.3)]
    kinds = {"h": "int8", "g": "text"}
    return {**shown, **{column: RandomTerm(f"{name}.{column}", kinds[column]) for column in kept}}


def _clauses(m: Maker, name: str) -> tuple[str, str, list[tuple[str, str]]]:
    """SEARCH or CYCLE, and what is shown of them."""
    case = "cid, " if m.cased else ""
    over = f"PARTITION BY {name}.cid ORDER BY {name}.seq" if m.cased else f"ORDER BY {name}.seq"
    number = f", rank() OVER ({over}) AS e1"
    cycle = f" CYCLE {case}j SET again USING path"
    return m.one_of(
        [
            *[("", "", [])] * 4,
            (cycle, ", again::int AS e1", [("e1", "int4")]),
            (f" SEARCH DEPTH FIRST BY {case}j, h SET seq", number, [("e1", "int8")]),
            (f" SEARCH BREADTH FIRST BY {case}g, j SET seq{cycle}", number, [("e1", "int8")]),
        ]
    )
