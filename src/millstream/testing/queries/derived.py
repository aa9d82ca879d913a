"""Items of FROM that are queries themselves: filtered, grouped, distinct, combined, joined,
recursive.

They stand in place, or are views or CTEs. Each has the columns `j`, `h` and `g` that all items
have, and the case where there are cases, so that anything can be joined to anything. What it is
made over is an item again, down to the depth that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from millstream.testing.queries.conditions import predicate, tie
from millstream.testing.queries.expressions import made
from millstream.testing.queries.functions import spread
from millstream.testing.queries.groups import having
from millstream.testing.queries.hiding import CONSTANT_KINDS, constant, hiding
from millstream.testing.queries.joins import OUTER
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.recursions import recursive
from millstream.testing.queries.subqueries import around, condition
from millstream.testing.queries.terms import (
    Body,
    Columns,
    FromSource,
    Item,
    RandomTerm,
    free,
    kind_of_sum,
    literal,
    told_apart,
)
from millstream.testing.randomness import KINDS


def item(m: Maker) -> Item:
    """Return a table, or a query over items; less of those the deeper it stands."""
    if m.depth <= 0 or m.chance(0.55):
        m.parts.add("table")
        return m.table()
    return query_item(m)


def query_item(m: Maker) -> Item:
    """Return a query as an item: a subquery, a view or a CTE."""
    if m.ctes and m.chance(0.3):
        m.parts.add("CTE used again")
        name = m.one_of(list(m.ctes))
        return m.named(name, m.ctes[name][1])
    how = m.part("subquery", "subquery", "view", "CTE")
    if how == "view":
        return _view(m)
    return _placed(m, how, *_body(m))


def constant_item(m: Maker) -> Item:
    """Return a query with a constant in its select list, in any form that an item may have."""
    how = m.part("subquery", "view", "CTE", "LATERAL subquery")
    if how != "view":
        return _placed(m, how, *_with_constant(m))
    with m.apart():
        body, columns = _with_constant(m)
        text = m.whole(body)
    return _viewed(m, text, columns)


def _placed(m: Maker, how: str, body: str, columns: Columns) -> Item:
    lateral = "LATERAL " if how == "LATERAL subquery" else ""
    return m.named(m.cte(body, columns) if how == "CTE" else f"{lateral}({body})", columns)


def _with_constant(m: Maker) -> Body:
    with m.deeper():
        inner = m.item()
    shown = _join_columns(inner)
    shown["k0"] = constant(m, m.one_of(CONSTANT_KINDS), null=0)
    return _select(m, inner, {**shown, **hiding(m, inner.columns, first=1)}, filtered=0.3)


def _join_columns(item: Item) -> dict[str, RandomTerm]:
    """Return the columns that every item has, to join by."""
    return {name: item.column(name) for name in "jhg"}


def _select(
    m: Maker, item: Item, shown: Mapping[str, RandomTerm], *, filtered: float, word: str = "SELECT"
) -> Body:
    """Select from an item; `filtered` is the chance of a WHERE."""
    source = FromSource(item.sql, (item,))
    listed, columns = m.listed(source.case, shown)
    where = m.sometimes(filtered, lambda: predicate(m, item.columns))
    return f"{word} {listed} {source.text(where)}", columns


def _view(m: Maker) -> Item:
    return _viewed(m, *whole(m))


def _viewed(m: Maker, text: str, columns: Columns) -> Item:
    name = f"{m.prefix}view_{len(m.setup) + 1}"
    m.setup.append(f"CREATE VIEW {name} AS {text}")
    return m.named(name, columns)


def whole(m: Maker) -> Body:
    """Return a query of one of the kinds, with all it names."""
    with m.apart():
        body, columns = _body(m)
        return m.whole(body), columns


def _body(m: Maker) -> Body:
    """Return a query of one of the kinds."""
    name = m.part(*BODIES, "filtered", "filtered")
    with m.deeper():
        return BODIES[name](m)


def _filtered(m: Maker) -> Body:
    """Filtered and projected; the columns to join by keep their names."""
    inner = m.item()
    source = FromSource(inner.sql, (inner,))
    fixed = _join_columns(inner)
    others = [term for term in free(inner.columns) if term.name not in fixed]
    chosen = m.dice.sample(others, min(4, len(others)))
    computed = {f"e{n}": made(m, term) for n, term in enumerate(chosen)}
    listed, columns = m.listed(
        source.case, {**_joined_by(m, fixed), **computed, **hiding(m, inner.columns)}
    )
    where = m.sometimes(0.5, lambda: predicate(m, inner.columns))
    asked = condition(m, around(source)) if m.depth > 0 and m.chance(0.3) else ""
    return f"SELECT {listed} {source.text(where, asked)}{_idle_order(m)}", columns


def _idle_order(m: Maker) -> str:
    """Return an ORDER BY that decides nothing."""
    if not m.chance(0.1):
        return ""
    m.parts.add("ORDER BY in a subquery")
    return f" ORDER BY {m.one_of(['1', '2 DESC', '1 NULLS FIRST', '2 DESC NULLS LAST, 1'])}"


def _joined_by(m: Maker, fixed: dict[str, RandomTerm]) -> dict[str, RandomTerm]:
    """Return the columns to join by; sometimes one of them is a constant, or hides NULLs."""
    if not m.chance(0.25):
        return fixed
    name = m.one_of("jhg")
    term = fixed[name]
    kind = KINDS[term.kind]
    m.parts.add("constant to join by")
    value = f"{literal(m.one_of(kind.values))}::{kind.type}"
    return {
        **fixed,
        name: RandomTerm(m.one_of([value, f"coalesce({term.sql}, {value})"]), term.kind),
    }


def _united(m: Maker) -> Body:
    """Combine the same columns of two items, one after the other or as sets; a constant may tell
    the parts apart.
    """
    operator = m.part("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
    tags = [m.one_of(CONSTANT_KINDS) for _ in range(m.one_of([0, 1, 1]))]
    first, columns = _part(m, tags)
    return f"{first} {operator} {_part(m, tags)[0]}", columns


def _part(m: Maker, tags: Sequence[str]) -> Body:
    inner = m.item()
    h = RandomTerm(f"{inner.alias}.h::bigint", "int8")
    constants = {f"k{n}": constant(m, kind) for n, kind in enumerate(tags)}
    return _select(m, inner, {**_join_columns(inner), "h": h, **constants}, filtered=0.4)


def _distinct(m: Maker) -> Body:
    inner = m.item()
    shown = {**_join_columns(inner), **hiding(m, inner.columns, plain=True)}
    return _select(m, inner, shown, filtered=0.3, word="SELECT DISTINCT")


def _grouped(m: Maker) -> Body:
    """Groups; what is not a key is an aggregate."""
    inner = m.item()
    source = FromSource(inner.sql, (inner,))
    j, g = inner.column("j"), inner.column("g")
    keys = [term for term in (j, g) if m.chance(0.6)]
    greatest_j, least_g = RandomTerm(f"max({j.sql})", j.kind), RandomTerm(f"min({g.sql})", "text")
    shown = {
        "j": j if j in keys else greatest_j,
        "h": _count_or_greatest(m, inner.column("h")),
        "g": g if g in keys else least_g,
        "e0": _total(m, inner),
        **hiding(m, [*keys, greatest_j, least_g]),
    }
    text, columns = _select(m, inner, shown, filtered=0.3)
    case = [source.case] if m.cased else []
    group = ", ".join([*case, *(key.sql for key in keys)])
    text += f" GROUP BY {group}" if group else ""
    return text + m.sometimes(0.25, lambda: f" HAVING {having(m, source)}"), columns


def _count_or_greatest(m: Maker, term: RandomTerm) -> RandomTerm:
    count, greatest = RandomTerm("count(*)", "int8"), RandomTerm(f"max({term.sql})", term.kind)
    return m.one_of([count, greatest, RandomTerm(f"count({term.sql})", "int8")])


def _total(m: Maker, one: Item) -> RandomTerm:
    number = m.one_of([term for term in free(one.columns) if term.family in ("int", "numeric")])
    function = m.one_of(["sum", "sum", "min", "avg"])
    if function == "min":
        return RandomTerm(f"min({told_apart(number)})", number.kind)
    return RandomTerm(
        f"{function}({number.sql})", "numeric" if function == "avg" else kind_of_sum(number)
    )


def _padded(m: Maker) -> Body:
    """Return an outer join with computed columns over both sides."""
    one, other = m.item(), m.item()
    kind = m.one_of(OUTER)
    m.parts.add(f"{kind} join inside")
    on = tie(m, one, other, equal=kind == "FULL") or "true"
    source = FromSource(
        f"{one.sql} {kind} JOIN {other.sql} ON {on}", (one, other), padded=kind != "LEFT"
    )
    shown = {**_over_both(m, one, other), **hiding(m, m.one_of([one, other]).columns)}
    others = [
        term for term in (*one.columns, *other.columns) if term.name not in ("cid", "id", *"jhg")
    ]
    if others:
        shown["e1"] = m.one_of(others)
    listed, columns = m.listed(source.case, shown)
    where = m.sometimes(0.3, lambda: predicate(m, m.one_of([one, other]).columns))
    return f"SELECT {listed} {source.text(where)}", columns


def _over_both(m: Maker, one: Item, other: Item) -> dict[str, RandomTerm]:
    """Return columns over both sides of an outer join, most of them not NULL for a missing row."""
    a, b = one.alias, other.alias
    wide = "int8" if other.column("h").kind == "int8" else "int4"
    either_j, either_g = (
        RandomTerm(f"coalesce({a}.j, {b}.j)", "int4"),
        RandomTerm(f"coalesce({a}.g, {b}.g)", "text"),
    )
    some_h, more_h = RandomTerm(f"coalesce({b}.h, 0)", wide), RandomTerm(f"{b}.h + 1", wide)
    some_g = RandomTerm(f"coalesce({b}.g, 'none')", "text")
    sum_of_both = RandomTerm(f"{a}.j + {b}.j", "int4")
    by_case = RandomTerm(f"CASE WHEN {b}.j IS NULL THEN 7 ELSE {a}.j END", "int4")
    return {
        "j": m.one_of([one.column("j"), other.column("j"), either_j]),
        "h": m.one_of([some_h, more_h, other.column("h")]),
        "g": m.one_of([some_g, either_g]),
        "e0": m.one_of([sum_of_both, by_case]),
    }


def _windowed(m: Maker) -> Body:
    """Return the results of window functions for each row; equal rows may change places, so nothing
    else is shown.
    """
    inner = m.item()
    source = FromSource(inner.sql, (inner,))
    j, h, g = (inner.column(name).sql for name in "jhg")
    case = [source.case] if m.cased else []
    keys = [*case, *(key for key in (j, g) if m.chance(0.4))]
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    nulls = m.one_of(["", "", " NULLS FIRST", " DESC NULLS LAST", " DESC"])
    ordered = f"({by}ORDER BY {', '.join(m.dice.sample([j, h, g], 3))}{nulls})"
    excluded = m.one_of(["", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"])
    frame = m.one_of(["BETWEEN 1 PRECEDING AND CURRENT ROW", "1 PRECEDING"])
    rows = f"({by}ORDER BY {j}, {h}, {g} ROWS {frame}{excluded})"
    values = f"({by}ORDER BY {j} RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING{excluded})"
    groups = f"({by}ORDER BY {g}{nulls} GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING{excluded})"
    calls = {
        "rank": RandomTerm(f"rank() OVER {ordered}", "int8"),
        "row_number": RandomTerm(f"row_number() OVER {ordered}", "int8"),
        "sum over": RandomTerm(f"sum({j}) OVER {m.one_of([ordered, f'({by})'])}", "int8"),
        "count over": RandomTerm(f"count(*) OVER ({by})", "int8"),
        "lag": RandomTerm(f"{m.one_of(['lag', 'lead'])}({j}) OVER {ordered}", "int4"),
        "first_value": RandomTerm(f"first_value({j}) OVER {ordered}", "int4"),
        "moving": RandomTerm(f"max({j}) OVER {rows}", "int4"),
        "range": RandomTerm(f"sum({j}) OVER {values}", "int8"),
        "groups": RandomTerm(f"count({h}) OVER {groups}", "int8"),
        "named": RandomTerm("dense_rank() OVER w", "int8"),
        "extending": RandomTerm(f"count(*) OVER (w ORDER BY {j}, {h})", "int8"),
        "filtered over": RandomTerm(f"count(*) FILTER (WHERE {h} > 1) OVER {ordered}", "int8"),
    }
    call = m.part(*calls)
    shown = _join_columns(inner)
    extra = hiding(m, list(shown.values()))
    text, columns = _select(m, inner, {**shown, "e0": calls[call], **extra}, filtered=0.3)
    window = {"named": f" WINDOW w AS {ordered}", "extending": f" WINDOW w AS ({by})"}
    return text + window.get(call, ""), columns


def _with_values(m: Maker) -> Body:
    """Return an item joined with rows that are written down, on either side."""
    inner = m.item()
    rows = ", ".join(
        m.dice.sample(["(1, 'one')", "(2, NULL)", "(NULL, 'none')", "(2, 'two')", "(0, '')"], 3)
    )
    written = m.named(f"(VALUES {rows})", [("j", "int4"), ("g", "text")])
    values = f"{written.sql} (j, g)"
    kind = m.one_of(["INNER", "LEFT", "RIGHT", "FULL"])
    left, right = (values, inner.sql) if m.chance(0.5) else (inner.sql, values)
    m.parts.add("VALUES joined")
    v, a = written.alias, inner.alias
    source = FromSource(
        f"{left} {kind} JOIN {right} ON {v}.j = {a}.j", (inner,), padded=kind != "INNER"
    )
    case = f"coalesce({source.case}, 0)" if m.cased else ""
    shown = {
        "j": m.one_of(
            [RandomTerm(f"{v}.j", "int4"), RandomTerm(f"coalesce({v}.j, {a}.j)", "int4")]
        ),
        "h": inner.column("h"),
        "g": m.one_of([RandomTerm(f"{v}.g", "text"), inner.column("g")]),
        **hiding(m, inner.columns),
    }
    listed, columns = m.listed(case, shown)
    return f"SELECT {listed} {source.text()}", columns


def _natural(m: Maker) -> Body:
    """Two queries joined by the columns that they share."""
    one, other = m.item(), m.item()
    kind = m.one_of(["", "LEFT ", "RIGHT ", "FULL "])
    m.parts.add("NATURAL JOIN")
    left, right = _columns_of(m, one, "jh"), _columns_of(m, other, "jg")
    m.aliases += 2
    h = RandomTerm("h", one.column("h").kind)
    listed, columns = m.listed(
        "cid", {"j": RandomTerm("j", "int4"), "h": h, "g": RandomTerm("g", "text")}
    )
    joined = f"{left} AS a{m.aliases - 1} NATURAL {kind}JOIN {right} AS a{m.aliases}"
    return f"SELECT {listed} FROM {joined}", columns


def _columns_of(m: Maker, item: Item, names: str) -> str:
    """Return a subquery of some columns of an item, and the case."""
    listed = [f"{item.alias}.{name}" for name in [*(["cid"] if m.cased else []), *names]]
    return f"(SELECT {', '.join(listed)} FROM {item.sql})"


def _first(m: Maker) -> Body:
    """Return the first row of each key; ordered by all that is shown."""
    inner = m.item()
    source = FromSource(inner.sql, (inner,))
    fixed = _join_columns(inner)
    listed, columns = m.listed(
        source.case, {**fixed, **hiding(m, list(fixed.values()), plain=True)}
    )
    keys = [name for name, _ in columns][: m.dice.randint(1, 2) + m.cased]
    on = ", ".join(f"{inner.alias}.{name}" for name in keys)
    places = ", ".join(str(place) for place in range(1, len(columns) + 1))
    return f"SELECT DISTINCT ON ({on}) {listed} {source.text()} ORDER BY {places}", columns


def _limited(m: Maker) -> Body:
    """Return the first rows of all; ordered by all that is shown."""
    inner = m.item()
    source = FromSource(inner.sql, (inner,))
    fixed = _join_columns(inner)
    listed, columns = m.listed(
        source.case, {**fixed, **hiding(m, list(fixed.values()), plain=True)}
    )
    orders = ["", " DESC", " NULLS FIRST"]
    order = ", ".join(str(place) + m.one_of(orders) for place in range(1, len(columns) + 1))
    offset = m.sometimes(0.3, lambda: f" OFFSET {m.dice.randint(1, 3)}")
    return (
        f"SELECT {listed} {source.text()} ORDER BY {order} LIMIT {m.one_of([1, 3, 40])}{offset}",
        columns,
    )


BODIES: dict[str, Callable[[Maker], Body]] = {
    "filtered": _filtered,
    "united": _united,
    "distinct": _distinct,
    "grouped inside": _grouped,
    "padded": _padded,
    "windowed": _windowed,
    "VALUES": _with_values,
    "natural": _natural,
    "DISTINCT ON": _first,
    "limited": _limited,
    "function rows": spread,
    "recursive": recursive,
}
