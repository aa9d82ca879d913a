"""Conditions over one item, and ties between two."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import Item, RandomTerm, comparable, literal
from millstream.testing.randomness import COMPARED, KINDS


def predicate(m: Maker, terms: Sequence[RandomTerm]) -> str:
    """Return a condition over one item."""
    if m.clock and m.chance(0.4):
        return _timely(m, terms)
    term = m.one_of([term for term in terms if term.kind in COMPARED])
    value = literal(m.one_of(KINDS[term.kind].values))
    plain = m.one_of(
        [
            f"{term.sql} IS NULL",
            f"{term.sql} IS NOT NULL",
            f"{term.sql} = {value}",
            f"{term.sql} <> {value}",
            f"{term.sql} >= {value}" if term.family != "bool" else f"NOT {term.sql}",
            f"coalesce({term.sql} = {value}, true)",
            f"coalesce({term.sql}, {value}) <> {value}",
            _spelled(m, term),
            _spelled(m, term),
        ]
    )
    if m.chance(0.2):
        return f"({plain} OR {predicate(m, terms)})"
    return f"NOT ({plain})" if m.chance(0.15) else plain


def _spelled(m: Maker, term: RandomTerm) -> str:
    """Return a condition in one of the forms that the grammar has for it."""
    type_ = KINDS[term.kind].type.split(" COLLATE")[0]
    one, other = (f"{literal(m.one_of(KINDS[term.kind].values))}::{type_}" for _ in range(2))
    x, negated = term.sql, m.one_of(["", "NOT "])
    choices = {
        "BETWEEN": f"{x} {negated}BETWEEN {one} AND {other}",
        "BETWEEN SYMMETRIC": f"{x} {negated}BETWEEN SYMMETRIC {one} AND {other}",
        "IN of a list": f"{x} {negated}IN ({one}, {other})",
        "IS DISTINCT FROM": f"{x} IS {negated}DISTINCT FROM {one}",
        "row = row": f"({x}, {one}) = ({one}, {x})",
        "row IN": f"({x}, 1) {negated}IN (({one}, 1), ({other}, 2))",
        "CASE in a condition": f"CASE WHEN {x} IS NULL THEN false ELSE {x} <> {one} END",
    }
    if term.kind != "ints":
        # An array of arrays is compared with what is in them.
        choices |= {
            "= ANY of an array": f"{x} = ANY (ARRAY[{one}, {other}])",
            "<> ALL of an array": f"{x} <> ALL (ARRAY[{one}, NULL])",
        }
    if term.family == "text":
        choices |= {
            "LIKE": f"{x} {negated}LIKE {literal(m.one_of(['a%', '_', '%b%', '']))}",
            "ILIKE": f"{x} {negated}ILIKE 'a%'",
            "SIMILAR TO": f"{x} {negated}SIMILAR TO '(a|b)%'",
            "regular expression": f"{x} {m.one_of(['~', '!~', '~*'])} '^[ab]'",
            "COLLATE": f'{x} COLLATE "C" > {one}',
        }
    if term.family == "bool":
        choices |= {
            "boolean column": f"{negated}{x}",
            "boolean AND OR": f"({x} AND {one} OR NOT {x})",
        }
    return f"({choices[m.part(*choices)]})"


def _timely(m: Maker, terms: Sequence[RandomTerm]) -> str:
    """Return a condition that the time turns: by a number that differs at each refresh, or by the
    time itself.
    """
    m.parts.add("clock")
    operator, number = (
        m.one_of(["<", "<=", ">", ">=", "=", "<>"]),
        "extract(microseconds FROM now())::bigint % 5",
    )
    numbers = [term.sql for term in terms if term.family == "int"]
    # An average may have more digits than Spark's decimals (docs/roadmap.md).
    numbers += [f"round({term.sql}, 3)" for term in terms if term.family == "numeric"]
    times = [term.sql for term in terms if term.kind == "timestamptz"]
    if times and m.chance(0.3):
        return f"{m.one_of(times)} + {number} * interval '20 months' {operator} now()"
    asked = f"{m.one_of(numbers)} {operator} {number} - 1"
    return m.one_of(
        [asked, f"NOT ({asked})", f"coalesce({asked}, true)", f"({asked} OR {number} = 2)"]
    )


def tie(m: Maker, one: Item, other: Item, *, equal: bool = False) -> str:
    """Return the condition that joins two items; always by case, where there are cases."""
    ties = [f"{one.alias}.cid = {other.alias}.cid"] if m.cased else []
    how = m.part(
        *["equal"] * 3, "two", "mixed", *([] if equal else ["theta", "rows", "list", "case only"])
    )
    if how in ("equal", "two", "mixed"):
        ties.append(comparison(m, one, other, "="))
    if how == "two":
        ties.append(comparison(m, one, other, "="))
    if how in ("theta", "mixed"):
        ties.append(comparison(m, one, other, m.one_of(["<", "<=", ">", "<>", "IS DISTINCT FROM"])))
    if how == "rows":
        a, b = one.alias, other.alias
        ties.append(f"({a}.j, {a}.h) {m.one_of(['<', '<=', '>', '>='])} ({b}.h, {b}.j)")
    if how == "list":
        ties.append(
            f"{one.alias}.j {m.one_of(['IN', 'IN', 'NOT IN'])} ({other.alias}.j, {other.alias}.h, 2)"
        )
    return " AND ".join(ties)


def comparison(m: Maker, one: Item, other: Item, operator: str) -> str:
    """Two columns compared."""
    if m.chance(0.6):
        return f"{one.alias}.{m.one_of('jh')} {operator} {other.alias}.{m.one_of('jh')}"
    pairs = [(a, b) for a in one.columns for b in other.columns if comparable(a, b, operator)]
    left, right = m.one_of(pairs)
    if left.family == "int" and m.chance(0.3):
        return f"{left.sql} + 1 {operator} {right.sql}"
    return f"{left.sql} {operator} {right.sql}"
