"""Whole queries: plain, grouped, distinct, and set operations, nested."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.testing.queries.conditions import comparison, predicate, tie
from millstream.testing.queries.derived import constant_item
from millstream.testing.queries.expressions import across, made, of_family
from millstream.testing.queries.groups import grouping, having, keys, measure
from millstream.testing.queries.hiding import hidden
from millstream.testing.queries.joins import OUTER, commas
from millstream.testing.queries.joins import source as items_joined
from millstream.testing.queries.laterals import with_lateral
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.subqueries import (
    Around,
    around,
    asking,
    condition,
    gathered,
    scalar,
)
from millstream.testing.queries.terms import FromSource, RandomTerm, free, literal
from millstream.testing.randomness import COMPARED, KINDS


def from_clause(m: Maker, most: int = 4) -> FromSource:
    """Return a FROM clause; sometimes a LATERAL item comes last."""
    source = items_joined(m, most)
    return with_lateral(m, source) if m.depth > 0 and m.chance(0.15) else source


def query(m: Maker) -> str:
    """Return a query of some kind, without its WITH clause."""
    often = [*["plain"] * 4, *["grouped"] * 4, *["null-extended"] * 3, *["combined"] * 2]
    name = m.part(*often, "distinct at the top", "beside its group")
    return SELECTS[name](m)


def _plain(m: Maker) -> str:
    return _rows(m, "SELECT")


def _distinct(m: Maker) -> str:
    return _rows(m, "SELECT DISTINCT")


def _rows(m: Maker, select: str) -> str:
    return _rows_over(m, from_clause(m), select)


def _rows_over(m: Maker, source: FromSource, select: str) -> str:
    terms = _columns(m, source)
    if m.chance(0.5):
        m.parts.add("ids")
        terms = [term for term in source.terms if term.name == "id"] + terms
    if len(source.items) > 1 and m.chance(0.5):
        terms.append(across(m, source))
    if m.chance(0.15):
        terms.append(RandomTerm("'fixed'::text", "text"))
    if m.depth > 0 and m.chance(0.25):
        m.parts.add("subquery in the select list")
        how = m.one_of([scalar, scalar, gathered, _asked])
        terms.append(how(m, around(source)))
    if select != "SELECT":
        terms = [term for term in terms if term.kind not in ("jsonb", "ints")] or [
            source.items[0].column("j")
        ]
    text = f"{select} {_named(source, terms)} {source.text(_where(m, source))}"
    return text + _first_rows(m, source, len(terms)) if m.chance(0.1) else text


def _asked(m: Maker, host: Around) -> RandomTerm:
    return RandomTerm(asking(m, host), "bool")


def _first_rows(m: Maker, source: FromSource, terms: int) -> str:
    """ORDER BY everything, so that it is plain which rows are the first."""
    m.parts.add("ORDER BY, LIMIT")
    places = ", ".join(str(place) for place in range(1, terms + 1 + bool(source.case)))
    return f" ORDER BY {places} LIMIT {m.one_of([2, 5, 50])}"


def _grouped(m: Maker) -> str:
    return _grouped_over(m, from_clause(m))


def _grouped_over(m: Maker, source: FromSource) -> str:
    found = keys(m, source)
    case = [source.case] if source.case else []
    shown = [key for key in found if m.chance(0.85)]
    measures = [measure(m, source) for _ in range(m.dice.randint(0 if found else 1, 3))]
    if m.depth > 0 and m.chance(0.12):
        m.parts.add("subquery over groups")
        measures.append(scalar(m, _groups(source, found)).sql)
    outputs = [*case, *(key.sql for key in shown), *measures] or ["count(*)"]
    by = [*case, *(key.sql for key in found)]
    group = grouping(m, by) if by else _global(m)
    if group != ", ".join(by):
        outputs.append(f"grouping({', '.join(by)})")
    listed = ", ".join(f"{output} AS o{place}" for place, output in enumerate(outputs, 1))
    text = (
        f"SELECT {listed} {source.text(_where(m, source))}{f' GROUP BY {group}' if group else ''}"
    )
    return text + _having(m, source, found)


def _global(m: Maker) -> str:
    m.parts.add("global")
    return ""


def _having(m: Maker, source: FromSource, found: Sequence[RandomTerm]) -> str:
    conditions = [having(m, source)] if m.chance(0.25) else []
    if m.depth > 0 and m.chance(0.15):
        m.parts.add("subquery in HAVING")
        host = _groups(source, found)
        number = of_family(m, source, "int", "int4").sql
        value = m.one_of([f"sum({number})", "count(*)", f"max({number})", f"min({number})"])
        whole = f"{value} {m.one_of(['>', '<=', '<>'])} {_number(m, host).sql}"
        conditions.append(m.one_of([condition(m, host), whole]))
    return f" HAVING {' AND '.join(conditions)}" if conditions else ""


def _number(m: Maker, host: Around) -> RandomTerm:
    """Return a scalar subquery that is a number."""
    while (found := scalar(m, host)).family not in ("int", "numeric"):
        pass
    return found


def _groups(source: FromSource, found: Sequence[RandomTerm]) -> Around:
    """Return groups as a host: a subquery may name the keys that are columns."""
    return Around(
        [key for key in found if key in source.terms],
        [] if source.padded else list(filter(None, [source.case])),
    )


def _beside_its_group(m: Maker) -> str:
    """Compare rows with their group, for the rows of a few: the groups of no others are read."""
    keyed = [table for table in m.tables if table.key]
    if not keyed:
        return _plain(m)
    table = m.one_of(m.tables)
    own, again, few = m.table(table), m.table(table), m.table(m.one_of(keyed))
    same = [
        f"{{0}}.{name} = {few.alias}.{other}"
        for name, other in [("cid", "cid"), ("j", "id")][not m.cased :]
    ]
    source = FromSource(
        f"{own.sql}, {few.sql}", (own, few), tuple(one.format(own.alias) for one in same)
    )
    number = m.one_of([term for term in free(again.columns) if term.family in ("int", "numeric")])
    value = m.one_of(
        [
            f"avg({number.sql})",
            f"max({number.sql})",
            f"sum({number.sql})",
            "count(*)",
            f"count({number.sql})",
        ]
    )
    ties = [
        *(one.format(again.alias) for one in same),
        *([predicate(m, again.columns)] if m.chance(0.4) else ()),
    ]
    group = f"(SELECT {value} FROM {again.sql} WHERE {' AND '.join(ties)})"
    compared = own.column(number.name).sql
    asked = m.one_of(
        [
            f"{compared} <= {group}",
            f"coalesce({group}, 2) >= 2",
            f"({compared} < {group}) IS NOT TRUE",
        ]
    )
    shown = [own.column("j"), own.column(number.name), *_columns(m, source)]
    return f"SELECT {_named(source, shown)} {source.text(predicate(m, few.columns), asked)}"


def null_extended(m: Maker) -> str:
    """Return an outer join to a query whose constants, and what hides NULLs, are used above the
    join.
    """
    with m.deeper():
        one, other, kind = m.item(), constant_item(m), m.one_of(OUTER)
    m.parts.add(f"{kind} join of a query")
    sides = (other, one) if kind == "RIGHT" else (one, other)
    tied = tie(m, *sides, equal=kind == "FULL") or "true"
    source = FromSource(
        f"{sides[0].sql} {kind} JOIN {sides[1].sql} ON {tied}", sides, padded=kind != "LEFT"
    )
    mine = [term for term in other.columns if term.name.startswith("k")] or free(other.columns)
    term = m.one_of([term for term in mine if term.kind in COMPARED] or [other.column("j")])
    if m.chance(0.3):
        counted = f"count({term.sql}) AS n, count(*) AS c, max({one.alias}.j) AS m"
        keys = ", ".join(
            [*([source.case] if m.cased else []), *([term.sql] if m.chance(0.6) else [])]
        )
        grouped = f" GROUP BY {keys}" if keys else ""
        return f"SELECT {f'{source.case} AS cid, ' if m.cased else ''}{counted} {source.text()}{grouped}"
    value = f"{literal(m.one_of(KINDS[term.kind].values))}::{KINDS[term.kind].type}"
    asked = m.one_of(
        [
            "",
            "",
            f"{term.sql} IS NULL",
            f"({term.sql} = {value}) IS NOT TRUE",
            f"{term.sql} IS NOT NULL",
        ]
    )
    shown = [one.column("j"), *mine, hidden(m, term)]
    return f"SELECT {_named(source, shown)} {source.text(asked)}"


def reordered(m: Maker) -> tuple[str, str]:
    """Return a query over items joined by commas, and the same with its items the other way round."""
    with m.deeper():
        items = [m.item() for _ in range(m.dice.randint(2, 3))]
    source = commas(m, items)
    text = _grouped_over(m, source) if m.chance(0.5) else _rows_over(m, source, "SELECT")
    return text, text.replace(source.sql, ", ".join(item.sql for item in reversed(items)))


def _combined(m: Maker) -> str:
    """UNION, INTERSECT and EXCEPT of two or three, sometimes in parentheses."""
    kinds = [m.one_of(["int4", "money2", "numeric", "text", "date"]) for _ in range(2)]
    text = _combined_part(m, kinds)
    for _ in range(m.dice.randint(1, 2)):
        operator = m.part(
            "UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"
        )
        other = _combined_part(m, kinds)
        if m.chance(0.3):
            m.parts.add("set operation in parentheses")
            inside = m.one_of(["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
            other = f"({other} {inside} {_combined_part(m, kinds)})"
        text = f"({text}) {operator} {other}" if m.chance(0.5) else f"{text} {operator} {other}"
    return text


def _combined_part(m: Maker, kinds: Sequence[str]) -> str:
    source = from_clause(m, most=2)
    terms = [of_family(m, source, KINDS[kind].family, kind) for kind in kinds]
    return f"SELECT {_named(source, terms)} {source.text(_where(m, source))}"


def _named(source: FromSource, terms: Sequence[RandomTerm]) -> str:
    outputs = [*([source.case] if source.case else []), *(term.sql for term in terms)]
    return ", ".join(f"{output} AS o{place}" for place, output in enumerate(outputs, 1))


def _columns(m: Maker, source: FromSource) -> list[RandomTerm]:
    terms = free(source.terms)
    chosen = m.dice.sample(terms, min(len(terms), m.dice.randint(1, 4)))
    return [made(m, term) if m.chance(0.4) else term for term in chosen]


def _where(m: Maker, source: FromSource) -> str:
    conditions = []
    if m.chance(0.4):
        conditions.append(predicate(m, m.one_of(source.items).columns))
    if len(source.items) > 1 and m.chance(0.2):
        one, other = m.dice.sample(list(source.items), 2)
        pair = comparison(m, one, other, m.one_of(["<", ">=", "<>", "="]))
        conditions.append(f"({pair} OR {predicate(m, one.columns)})")
    if m.depth > 0 and m.chance(0.3):
        m.parts.add("subquery in WHERE")
        conditions.append(condition(m, around(source)))
    return " AND ".join(conditions)


SELECTS: dict[str, Callable[[Maker], str]] = {
    "plain": _plain,
    "grouped": _grouped,
    "combined": _combined,
    "distinct at the top": _distinct,
    "beside its group": _beside_its_group,
    "null-extended": null_extended,
}
