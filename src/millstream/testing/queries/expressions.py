"""Immutable expressions over one item, and over two."""

from __future__ import annotations

from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import FromSource, RandomTerm, free, literal
from millstream.testing.randomness import KINDS, Family


def made(m: Maker, term: RandomTerm) -> RandomTerm:
    """Return an immutable expression over the term; of the same kind, or nearly."""
    x, wide = term.sql, "int8" if term.kind == "int8" else "int4"
    choices: dict[str, list[tuple[str, str]]] = {
        "int": [(f"{x} + 1", wide), (f"abs({x})", term.kind), (f"{x} % 3", wide), (f"coalesce({x}, 2)", wide),
                (f"CASE WHEN {x} > 1 THEN {x} ELSE 0 END", wide), (f"nullif({x}, 1)", term.kind),
                (f"({x})::numeric(24,2)", "numeric"), (f"({x})::text", "text"),
                (f"(ARRAY[{x}, 7])[2]", wide), (f"CASE {x} WHEN 1 THEN 2 WHEN 2 THEN NULL ELSE {x} END", wide)],
        "numeric": [(f"{x} * 2", "numeric"), (f"round({x}, 1)", "numeric"), (f"coalesce({x}, 0.5)", "numeric")],
        "float": [(f"{x} * 2", "float8"), (f"coalesce({x}, 4)", "float8")],
        "text": [(f"upper({x})", "text"), (f"{x} || '!'", "text"), (f"substr({x}, 1, 1)", "text"),
                 (f"coalesce({x}, 'none')", "text"), (f"length({x})", "int4"), (f"({x})::varchar(3)::text", "text"),
                 (f"(ARRAY[{x}, 'z'])[1]", "text"),
                 (f"CASE {x} WHEN 'a' THEN 'b' WHEN 'b' THEN NULL ELSE {x} END", "text")],
        "bool": [(f"NOT {x}", "bool"), (f"coalesce({x}, false)", "bool")],
        "date": [(f"{x} + 1", "date"), (f"coalesce({x}, '2001-01-01')", "date")],
        "time": [(f"{x} + '1 hour'", term.kind) if term.kind == "timestamp" else (x, term.kind)],
        "other": [(x, term.kind)],
    }  # fmt: skip
    text, kind = m.one_of(choices[term.family])
    if term.kind == "ctext" and kind == "text":
        kind = "ctext"
    return RandomTerm(text, kind, term.alias)


def of_family(m: Maker, source: FromSource, family: Family, kind: str) -> RandomTerm:
    """Return a term of that family; the value of a constant where there is none."""
    terms = [term for term in free(source.terms) if term.family == family]
    if terms and m.chance(0.9):
        term = m.one_of(terms)
        return _within(m, term, family) if m.chance(0.3) else term
    return RandomTerm(f"{literal(m.one_of(KINDS[kind].values))}::{KINDS[kind].type}", kind)


def _within(m: Maker, term: RandomTerm, family: Family) -> RandomTerm:
    found = made(m, term)
    return found if found.family == family else term


def across(m: Maker, source: FromSource) -> RandomTerm:
    """Return an expression over two items, for a select list: PostgreSQL evaluates it, whatever it
    is.
    """
    m.part("expression across")
    a, b = (item.alias for item in m.dice.sample(list(source.items), 2))
    return m.one_of(
        [
            RandomTerm(f"{a}.j + {b}.h", "int8"),
            RandomTerm(f"{a}.g || {b}.g", "text"),
            RandomTerm(f"greatest({a}.j, {b}.j)", "int4"),
            RandomTerm(
                f"CASE WHEN {a}.j > {b}.j THEN {a}.g WHEN {b}.h = 1 THEN 'one' ELSE {b}.g END",
                "text",
            ),
            RandomTerm(f"coalesce({a}.g, {b}.g, '?')", "text"),
            RandomTerm(f"({a}.j = {b}.j AND {a}.g IS NOT NULL) OR {b}.h > 1", "bool"),
            RandomTerm(f"{a}.j BETWEEN {b}.j AND {b}.h", "bool"),
            RandomTerm(f"upper({a}.g) || lower({b}.g)", "text"),
            RandomTerm(f"{a}.j::numeric / nullif({b}.j, 0)", "numeric"),
            RandomTerm(f"nullif({a}.j, {b}.j)", "int4"),
            RandomTerm(f"ARRAY[{a}.j, {b}.j]", "ints"),
            RandomTerm(f"{a}.j = ANY (ARRAY[{b}.j, {b}.h])", "bool"),
            RandomTerm(f"{a}.j > ALL ({b}.j || ARRAY[1, {b}.j])", "bool"),
            RandomTerm(f"({a}.j, {b}.h) < ({b}.j, {a}.h)", "bool"),
        ]
    )


def across_int(m: Maker, source: FromSource) -> RandomTerm:
    """Return an integer over two items that Spark computes."""
    a, b = (item.alias for item in m.dice.sample(list(source.items), 2))
    return m.one_of(
        [
            RandomTerm(f"{a}.j + {b}.j", "int4"),
            RandomTerm(f"{a}.j - {b}.j", "int4"),
            RandomTerm(f"{a}.j::bigint * {b}.h", "int8"),
            RandomTerm(f"CASE WHEN {a}.j > {b}.j THEN {a}.j ELSE {b}.j END", "int4"),
            RandomTerm(f"CASE WHEN {a}.g = {b}.g THEN 1 END", "int4"),
            RandomTerm(f"coalesce({a}.j, {b}.j, 0)", "int4"),
        ]
    )


def product(m: Maker, source: FromSource) -> RandomTerm:
    """Return a number over two items, at least one of them a numeric."""
    numbers = [
        (a, b)
        for one in source.items
        for other in source.items
        if one is not other
        for a in one.columns
        for b in other.columns
        if a.family == "numeric"
        and b.family in ("int", "numeric")
        and (a.kind, b.kind) != ("numeric", "numeric")
    ]
    if not numbers:
        return across_int(m, source)
    a, b = m.one_of(numbers)
    return RandomTerm(f"{a.sql} {m.one_of(['*', '+', '-'])} {b.sql}", "numeric")
