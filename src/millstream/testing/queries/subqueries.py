"""Subqueries in expressions: EXISTS, IN, ANY, ALL, scalar; tied to the row around them, and not.

They stand in WHERE, in HAVING and in the select list; under NOT, OR, IS NOT TRUE and coalesce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.testing.queries.conditions import predicate
from millstream.testing.queries.hiding import CONSTANT_KINDS, constant, hidden
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import (
    FromSource,
    Item,
    RandomTerm,
    comparable,
    free,
    kind_of_sum,
    told_apart,
)
from millstream.testing.randomness import COMPARED, RandomTable

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Around:
    """What of the query around it a subquery may name."""

    terms: Sequence[RandomTerm]
    cases: Sequence[str] = ()
    """What the case may be compared with; empty where there are no cases, or none that may be
    named.
    """


def around(source: FromSource) -> Around:
    """Return the rows of a FROM clause."""
    return Around(free(source.terms), [term.sql for term in source.terms if term.name == "cid"])


def condition(m: Maker, host: Around) -> str:
    """Return a condition with a subquery in it, under whatever it may stand."""
    asked = asking(m, host)
    how = m.part(
        *["asked plainly"] * 4, "asked under NOT", "asked under OR", "asked under coalesce"
    )
    if how == "asked under NOT":
        return f"NOT ({asked})"
    if how == "asked under OR" and host.terms:
        other = predicate(m, host.terms) if m.chance(0.6) else asking(m, host)
        return f"({asked} OR {other})"
    if how == "asked under coalesce":
        return m.one_of(
            [f"coalesce({asked}, {m.one_of(['true', 'false'])})", f"({asked}) IS NOT TRUE"]
        )
    return asked


def asking(m: Maker, host: Around) -> str:
    """Return a truth value that a subquery decides."""
    with m.deeper():
        how = m.one_of([_exists, _exists, _in, _in, _two_in, _quantified, _compared])
        return how(m, host)


def scalar(m: Maker, host: Around) -> RandomTerm:
    """Return a scalar subquery that is a number, or a value found by a unique key."""
    with m.deeper():
        keyed = [table for table in m.tables if table.key]
        ints = [term for term in host.terms if term.family == "int"]
        if keyed and ints and m.chance(0.25):
            return _by_key(m, host, m.one_of(keyed))
        if ints and m.chance(0.2):
            return _one_of_several(m, host, m.one_of(ints))
        return _aggregated(m, host)


def gathered(m: Maker, host: Around) -> RandomTerm:
    """ARRAY of a subquery; in the order of its values, so that there is one answer."""
    with m.deeper():
        item = m.item()
        value = m.one_of([item.column("j"), RandomTerm(f"coalesce({item.alias}.j, 1)", "int4")])
        m.parts.add("ARRAY of a subquery")
        order = m.one_of(["ORDER BY 1", "ORDER BY 1 DESC", "ORDER BY 1 NULLS FIRST"])
        return RandomTerm(f"ARRAY(SELECT {value.sql} {tied(m, host, item)} {order})", "ints")


# -- EXISTS ----------------------------------------------------------------------------------


def _exists(m: Maker, host: Around) -> str:
    which = m.part("EXISTS", "NOT EXISTS")
    item = m.item()
    if m.chance(0.15):
        m.parts.add("EXISTS of groups")
        return f"{which} (SELECT {item.alias}.g {tied(m, host, item)} GROUP BY {item.alias}.g HAVING count(*) > 1)"
    return f"{which} (SELECT {m.one_of(['1', '*', item.alias + '.j'])} {tied(m, host, item)})"


def tied(m: Maker, host: Around, item: Item, *, equal: bool = False, untied: float = 0.1) -> str:
    """FROM and WHERE of a subquery over one item, tied to the row around it."""
    ties = _case(m, host, item)
    if host.terms and not m.chance(untied):
        ties.append(_tie(m, host, item, equal=equal))
        m.parts.add("correlated")
    if m.chance(0.4):
        ties.append(predicate(m, item.columns))
    if m.depth > 0 and m.chance(0.2):
        m.parts.add("asked inside")
        further = list[RandomTerm]()
        if host.terms and m.chance(0.4):
            m.parts.add("two levels")
            further = list(host.terms)
        cases = [t.sql for t in item.columns if t.name == "cid"]
        ties.append(condition(m, Around([*free(item.columns), *further], cases)))
    return f"FROM {item.sql}" + (f" WHERE {' AND '.join(ties)}" if ties else "")


def _case(m: Maker, host: Around, item: Item) -> list[str]:
    return [f"{item.alias}.cid = {m.one_of(host.cases)}"] if host.cases else []


def _tie(m: Maker, host: Around, item: Item, *, equal: bool) -> str:
    operator = "=" if equal or m.chance(0.75) else m.one_of(["<", ">", "<>", "IS DISTINCT FROM"])
    ints = [term for term in host.terms if term.family == "int"]
    if ints and m.chance(0.6):
        return f"{item.alias}.{m.one_of('jh')} {operator} {m.one_of(ints).sql}"
    pairs = [(a, b) for a in free(item.columns) for b in host.terms if comparable(a, b, operator)]
    if not pairs:
        return "true"
    own, outer = m.one_of(pairs)
    return f"{own.sql} {operator} {outer.sql}"


# -- IN --------------------------------------------------------------------------------------


def _in(m: Maker, host: Around) -> str:
    which, item = m.part("IN", "NOT IN"), m.item()
    value, own = _same_kind(m, host, item)
    first = " ORDER BY 1 LIMIT 2" if m.chance(0.15) else ""
    if first:
        m.parts.add("IN of the first")
    return f"{value} {which} (SELECT {own} {tied(m, host, item, untied=0.6)}{first})"


def _two_in(m: Maker, host: Around) -> str:
    """Compare two columns with IN; one of them is the case where there are cases."""
    which, item = m.part("IN", "NOT IN"), m.item()
    m.parts.add("IN of two columns")
    value, own = _same_kind(m, host, item)
    first = (m.one_of(host.cases), f"{item.alias}.cid") if host.cases else _same_kind(m, host, item)
    where = f" WHERE {predicate(m, item.columns)}" if m.chance(0.4) else ""
    return f"({first[0]}, {value}) {which} (SELECT {first[1]}, {own} FROM {item.sql}{where})"


def _same_kind(m: Maker, host: Around, item: Item) -> tuple[str, str]:
    """Return a value of the host and a column of the item to compare it with."""
    ints = [term for term in host.terms if term.family == "int"]
    pairs = [(a, b) for a in host.terms for b in free(item.columns) if comparable(a, b, "=")]
    if ints and m.chance(0.5):
        column = f"{item.alias}.{m.one_of('jh')}"
        return m.one_of(ints).sql, m.one_of([column, column, column, f"coalesce({column}, 1)", "1"])
    if pairs and m.chance(0.9):
        value, own = m.one_of(pairs)
        return value.sql, own.sql
    return "2", f"{item.alias}.{m.one_of('jh')}"


# -- ANY, ALL --------------------------------------------------------------------------------


def _quantified(m: Maker, host: Around) -> str:
    which, operator, item = m.part("ANY", "ALL"), m.one_of(OPERATORS), m.item()
    m.parts.add(f"{operator} {which}")
    value, own = _same_int(m, host, item)
    if m.chance(0.4):
        return f"{value} {operator} {which} (SELECT {own} {tied(m, host, item)})"
    where = f" WHERE {predicate(m, item.columns)}" if m.chance(0.6) else ""
    return f"{value} {operator} {which} (SELECT {own} FROM {item.sql}{where})"


def _same_int(m: Maker, host: Around, item: Item) -> tuple[str, str]:
    numbers = [term for term in host.terms if term.family in ("int", "numeric")]
    own = m.one_of([term for term in free(item.columns) if term.family in ("int", "numeric")])
    shown = m.one_of([own.sql, own.sql, own.sql, f"coalesce({own.sql}, 1)", "1"])
    return m.one_of(numbers).sql if numbers else "1", shown


# -- scalar ----------------------------------------------------------------------------------


def _compared(m: Maker, host: Around) -> str:
    """Return a number compared with a scalar subquery."""
    found = _aggregated(m, host)
    numbers = [term for term in host.terms if term.family in ("int", "numeric")]
    value = m.one_of(numbers).sql if numbers else "2"
    return f"{value} {m.one_of(OPERATORS)} {found.sql}"


def _aggregated(m: Maker, host: Around) -> RandomTerm:
    """Return the aggregate of an item's rows: those that the row around it is tied to, or all."""
    m.parts.add("scalar")
    item = m.item()
    number = m.one_of([term for term in free(item.columns) if term.family in ("int", "numeric")])
    total = kind_of_sum(number)
    choices = {
        f"min({told_apart(number)})": number.kind, f"max({told_apart(number)})": number.kind,
        f"sum({number.sql})": total, f"avg({number.sql})": "numeric",
        "count(*)": "int8", f"count({number.sql})": "int8",
        "5 + count(*)": "int8", "CASE WHEN count(*) = 0 THEN 7 ELSE 8 END": "int4",
        f"coalesce(sum({number.sql}), 0)": total, f"max({number.sql}) - min({number.sql})": number.kind,
    }  # fmt: skip
    call = m.one_of(list(choices))
    m.parts.add(f"scalar {call.split('(')[0]}")
    equal = m.chance(0.6)
    m.parts.add("scalar tied by equality" if equal else "scalar tied by anything")
    text = tied(m, host, item, equal=equal, untied=0.3)
    return RandomTerm(f"(SELECT {call} {text})", choices[call])


def _one_of_several(m: Maker, host: Around, value: RandomTerm) -> RandomTerm:
    """Return a value of which there may be several rows, but for DISTINCT or LIMIT."""
    item = m.item()
    own = f"{item.alias}.j"
    same = [*_case(m, host, item), f"{own} = {value.sql}"]
    if m.chance(0.5):
        m.parts.add("scalar DISTINCT")
        return RandomTerm(
            f"(SELECT DISTINCT {own} FROM {item.sql} WHERE {' AND '.join(same)})", "int4"
        )
    m.parts.add("scalar LIMIT")
    return RandomTerm(
        f"(SELECT {own} {tied(m, host, item)} ORDER BY 1{m.one_of(['', ' DESC'])} LIMIT 1)", "int4"
    )


def _by_key(m: Maker, host: Around, table: RandomTable) -> RandomTerm:
    """Return a column of the one row that a unique key names."""
    m.parts.add("scalar by key")
    item = m.table(table)
    ints = [term for term in host.terms if term.family == "int"]
    key = f"{item.alias}.id = {m.one_of(ints).sql}"
    shown = m.one_of(free(item.columns))
    if m.chance(0.5):
        m.parts.add("scalar that hides NULLs")
        named = [term for term in (*free(item.columns), *host.terms) if term.kind in COMPARED]
        shown = m.one_of([constant(m, m.one_of(CONSTANT_KINDS)), hidden(m, m.one_of(named))])
    return RandomTerm(
        f"(SELECT {shown.sql} FROM {item.sql} WHERE {' AND '.join([*_case(m, host, item), key])})",
        shown.kind,
    )
