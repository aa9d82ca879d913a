"""LATERAL items of FROM: filtered, limited, grouped, aggregated, combined, for each row of the
items before them.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.testing.queries.hiding import CONSTANT_KINDS, constant, hiding
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.subqueries import Around, around, tied
from millstream.testing.queries.terms import Columns, FromSource, Item, RandomTerm


def with_lateral(m: Maker, source: FromSource) -> FromSource:
    """Return a FROM clause and one LATERAL item after it."""
    host = around(source)
    with m.deeper():
        name = m.part(*BODIES)
        body, columns = BODIES[name](m, host, source.case)
    item = m.named(f"LATERAL ({body})", columns)
    how = m.part(
        "LATERAL", "LATERAL", "CROSS JOIN LATERAL", "LEFT JOIN LATERAL", "LEFT JOIN LATERAL ON"
    )
    if how == "LATERAL":
        text = f"{source.sql}, {item.sql}"
    elif how == "LEFT JOIN LATERAL ON":
        text = f"{source.sql} LEFT JOIN {item.sql} ON {item.alias}.j > {source.items[-1].alias}.j"
    else:
        text = f"{source.sql} {how.removesuffix(' LATERAL')} {item.sql}{' ON true' if how.startswith('LEFT') else ''}"
    return FromSource(text, (*source.items, item), source.conditions, source.padded)


def _shown(m: Maker, one: Item, host: Around) -> dict[str, RandomTerm]:
    """Return the columns to join by; constants, and what hides NULLs of the item or of the row that
    it is for.
    """
    more = hiding(m, [*one.columns, *host.terms], plain=True)
    if host.terms and m.chance(0.3):
        m.parts.add("outer column in LATERAL")
        more["e0"] = m.one_of(host.terms)
    return {**{name: one.column(name) for name in "jhg"}, **more}


def _own_case(m: Maker, one: Item) -> str:
    return f"{one.alias}.cid" if m.cased else ""


def _rows(m: Maker, host: Around, case: str) -> tuple[str, Columns]:
    one = m.item()
    listed, columns = m.listed(_own_case(m, one), _shown(m, one, host))
    return f"SELECT {m.one_of(['', 'DISTINCT '])}{listed} {tied(m, host, one)}", columns


def _first(m: Maker, host: Around, case: str) -> tuple[str, Columns]:
    """Ordered by all that is shown, so that it is plain which rows are the first."""
    text, columns = _rows(m, host, case)
    order = ", ".join(str(place) + m.one_of(["", " DESC"]) for place in range(1, len(columns) + 1))
    tail = m.one_of(["LIMIT 1", "LIMIT 2", "LIMIT 2 OFFSET 1", "FETCH FIRST 2 ROWS WITH TIES"])
    return f"{text} ORDER BY {order} {tail}", columns


def _groups(m: Maker, host: Around, case: str) -> tuple[str, Columns]:
    one = m.item()
    shown = {
        "j": RandomTerm(f"max({one.alias}.j)", "int4"),
        "h": RandomTerm("count(*)", "int8"),
        "g": one.column("g"),
    }
    shown |= hiding(
        m, [RandomTerm(f"{one.alias}.g", "text"), RandomTerm(f"max({one.alias}.j)", "int4")]
    )
    listed, columns = m.listed(_own_case(m, one), shown)
    keys = ", ".join([*([_own_case(m, one)] if m.cased else []), f"{one.alias}.g"])
    return f"SELECT {listed} {tied(m, host, one)} GROUP BY {keys}", columns


def _aggregate(m: Maker, host: Around, case: str) -> tuple[str, Columns]:
    """Return aggregates, which have one row whatever there is; its case is that of the row around
    it.
    """
    one = m.item()
    shown = {
        "j": RandomTerm(f"max({one.alias}.j)", "int4"),
        "h": RandomTerm("count(*)", "int8"),
        "g": RandomTerm(f"min({one.alias}.g)", "text"),
        **hiding(m, [RandomTerm(f"max({one.alias}.j)", "int4"), *host.terms]),
    }
    listed, columns = m.listed(case, shown)
    having = " HAVING count(*) < 3" if m.chance(0.2) else ""
    return f"SELECT {listed} {tied(m, host, one, equal=m.chance(0.5))}{having}", columns


def _numbered(m: Maker, host: Around, case: str) -> tuple[str, Columns]:
    one = m.item()
    by = f"PARTITION BY {one.alias}.g ORDER BY {one.alias}.j, {one.alias}.h"
    shown = {**_shown(m, one, host), "h": RandomTerm(f"rank() OVER ({by})", "int8")}
    listed, columns = m.listed(_own_case(m, one), shown)
    return f"SELECT {listed} {tied(m, host, one)}", columns


def _united(m: Maker, host: Around, case: str) -> tuple[str, Columns]:
    # Not UNION ALL: below another set operation PostgreSQL 18 "could not find pathkey item to
    # sort".
    operator = m.one_of(["UNION", "EXCEPT", "INTERSECT"])
    parts = list[str]()
    columns: Columns = ()
    tag = m.one_of(CONSTANT_KINDS)
    for _ in range(2):
        one = m.item()
        shown = {
            "j": one.column("j"),
            "h": RandomTerm(f"{one.alias}.h::bigint", "int8"),
            "g": one.column("g"),
        }
        shown["k0"] = constant(m, tag)
        listed, columns = m.listed(_own_case(m, one), shown)
        parts.append(f"SELECT {listed} {tied(m, host, one)}")
    return f" {operator} ".join(parts), columns


BODIES: dict[str, Callable[[Maker, Around, str], tuple[str, Columns]]] = {
    "lateral rows": _rows,
    "lateral first": _first,
    "lateral groups": _groups,
    "lateral aggregate": _aggregate,
    "lateral window": _numbered,
    "lateral union": _united,
}
