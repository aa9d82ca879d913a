"""Columns that are not NULL although what they are over is: constants, and expressions that hide
NULLs.

A derived table on the null-extended side of an outer join shows NULL in them where it has no match,
whatever they say. So every select list of a derived table has some of them, and queries around use
them like any other column.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import RandomTerm, free, literal
from millstream.testing.randomness import COMPARED, KINDS

# Types whose values can be told apart and ordered in PostgreSQL and in Spark.
CONSTANT_KINDS = ("bool", "int4", "text", "numeric", "date", "int8")


def hiding(
    m: Maker, terms: Sequence[RandomTerm], *, plain: bool = False, first: int = 0
) -> dict[str, RandomTerm]:
    """Return more columns for a select list over some terms; `plain` ones can be compared for
    equality by Spark too.
    """
    number = m.one_of([0, 1, 1, 1, 2, 2])
    return {f"k{n}": _hiding(m, terms, plain=plain) for n in range(first, first + number)}


def _hiding(m: Maker, terms: Sequence[RandomTerm], *, plain: bool) -> RandomTerm:
    usable = [term for term in free(terms) if term.kind in COMPARED]
    if not usable or m.chance(0.5):
        return constant(m, m.one_of(CONSTANT_KINDS))
    return hidden(m, m.one_of(usable), plain=plain)


def constant(m: Maker, kind: str, *, null: float = 0.1) -> RandomTerm:
    """Return a constant of a kind; seldom a NULL."""
    m.parts.add("constant")
    if m.chance(null):
        return RandomTerm(f"NULL::{KINDS[kind].type}", kind)
    words = {"bool": "true", "int4": str(m.dice.randint(0, 3))}
    if kind in words and m.chance(0.8):
        return RandomTerm(words[kind], kind)
    return RandomTerm(f"{literal(m.one_of(KINDS[kind].values))}::{KINDS[kind].type}", kind)


def hidden(m: Maker, term: RandomTerm, *, plain: bool = False) -> RandomTerm:
    """Return an expression over a term that has a value where the term is NULL."""
    x, value = term.sql, f"{literal(m.one_of(KINDS[term.kind].values))}::{KINDS[term.kind].type}"
    choices: dict[str, RandomTerm] = {
        "IS NULL": RandomTerm(f"{x} IS NULL", "bool"),
        "IS NOT NULL": RandomTerm(f"{x} IS NOT NULL", "bool"),
        "IS DISTINCT FROM": RandomTerm(f"{x} IS DISTINCT FROM {value}", "bool"),
        "CASE of NULL": RandomTerm(f"CASE WHEN {x} IS NULL THEN 'none' ELSE 'some' END", "text"),
        "simple CASE": RandomTerm(f"CASE {x} WHEN {value} THEN 1 ELSE 0 END", "int4"),
        "COALESCE": RandomTerm(f"coalesce({x}, {value})", term.kind),
        "COALESCE of a comparison": RandomTerm(f"coalesce({x} = {value}, true)", "bool"),
        "IS TRUE": RandomTerm(
            f"({x} = {value}) IS {m.one_of(['TRUE', 'NOT TRUE', 'NOT FALSE', 'UNKNOWN'])}", "bool"
        ),
        "OR true": RandomTerm(f"({x} = {value} OR true)", "bool"),
        "AND false": RandomTerm(f"({x} = {value} AND false)", "bool"),
        "num_nulls": RandomTerm(f"num_nulls({x}, {value})", "int4"),
        "row IS NULL": RandomTerm(f"ROW({x}, {value}) IS NULL", "bool"),
        "row IS NOT NULL": RandomTerm(f"ROW({x}, {x}) IS NOT NULL", "bool"),
        "cardinality": RandomTerm(f"cardinality(ARRAY[{x}, {value}])", "int4"),
        "NOT IN of a list": RandomTerm(f"coalesce({x} NOT IN ({value}, {value}), false)", "bool"),
    }
    if term.family == "int":
        choices |= {
            "GREATEST": RandomTerm(f"greatest({x}, 1)", _wide(term)),
            "LEAST": RandomTerm(f"least({x}, 1)", _wide(term)),
            "NULLIF of a constant": RandomTerm(f"nullif(1, {x})", _wide(term)),
            "concat": RandomTerm(f"concat({x}, '-')", "text"),
        }
    if term.kind == "int4" and not plain:
        choices |= {
            "ARRAY": RandomTerm(f"ARRAY[{x}, 1]", "ints"),
            "jsonb_build_object": RandomTerm(f"jsonb_build_object('a', {x})", "jsonb"),
        }
    if term.family == "text":
        choices["concat"] = RandomTerm(f"concat({x}, '-')", "text")
    if term.family == "bool":
        choices |= {
            "IS TRUE": RandomTerm(
                f"{x} IS {m.one_of(['TRUE', 'NOT TRUE', 'FALSE', 'NOT FALSE', 'UNKNOWN'])}", "bool"
            ),
            "OR": RandomTerm(f"({x} OR {m.one_of(['true', 'false'])})", "bool"),
            "AND": RandomTerm(f"({x} AND {m.one_of(['true', 'false'])})", "bool"),
        }
    return choices[m.part(*choices)]


def _wide(term: RandomTerm) -> str:
    return "int8" if term.kind == "int8" else "int4"
