"""GROUP BY: keys, measures, FILTER."""

from __future__ import annotations

from millstream.testing.queries.conditions import comparison, predicate
from millstream.testing.queries.expressions import across_int, made, of_family, product
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import FromSource, RandomTerm, free, told_apart
from millstream.testing.randomness import COMPARED


def keys(m: Maker, source: FromSource) -> list[RandomTerm]:
    """None, one or two; plain columns, expressions, and values of one item or the other."""
    terms = [term for term in free(source.terms) if term.kind in COMPARED]
    found = list[RandomTerm]()
    for _ in range(m.one_of([0, 1, 1, 1, 2])):
        term = m.one_of(terms)
        found.append(made(m, term) if m.chance(0.3) else term)
    if len(source.items) > 1 and m.chance(0.15):
        found.append(_alternative(m, source))
    return list(dict.fromkeys(found))


def _alternative(m: Maker, source: FromSource) -> RandomTerm:
    """Return a key that is the one item's value or the other's."""
    one, other = m.dice.sample(list(source.items), 2)
    pairs = [
        (a, b)
        for a in one.columns
        for b in other.columns
        if a.kind == b.kind and a.kind in COMPARED
    ]
    left, right = m.one_of(pairs)
    m.parts.add("key across")
    return RandomTerm(f"coalesce({left.sql}, {right.sql})", left.kind)


def measure(m: Maker, source: FromSource) -> str:
    """Return an aggregate, or an expression over aggregates."""
    function = m.part("count(*)", "count", "sum", "sum", "avg", "min", "max", "spread", "gathered")
    if function == "gathered":
        return _gathered(m, source)
    if function == "count(*)":
        return f"count(*){_filter(m, source)}"
    if function == "count":
        return f"count({m.one_of(source.terms).sql}){_filter(m, source)}"
    if function in ("min", "max"):
        return f"{function}({told_apart(_extreme(m, source))}){_filter(m, source)}"
    if function == "spread":
        term = of_family(m, source, "int", "int4").sql
        return f"max({term}) - min({term}) + count(*)"
    text = f"{function}({_number(m, source).sql}){_filter(m, source)}"
    return m.one_of([text, text, text, f"coalesce({text}, 0)", f"{text} > 1"])


def _gathered(m: Maker, source: FromSource) -> str:
    """Return an aggregate that no sum can keep; where order matters, by the value itself."""
    number, word = of_family(m, source, "int", "int4").sql, of_family(m, source, "text", "text").sql
    kinds = {
        "count(DISTINCT)": f"count(DISTINCT {m.one_of([number, word])})",
        "sum(DISTINCT)": f"sum(DISTINCT {number})",
        "string_agg": f"string_agg({word}, ',' ORDER BY {word})",
        "string_agg(DISTINCT)": f"string_agg(DISTINCT ({word})::text, ',' ORDER BY ({word})::text)",
        "array_agg": f"array_agg({number} ORDER BY {number} DESC)",
        "bool_and": f"bool_and({number} > 1)",
        "bit_or": f"bit_or({number})",
        "percentile_disc": f"percentile_disc(0.5) WITHIN GROUP (ORDER BY {number})",
        "variance": f"var_pop({number})",
    }
    return f"{kinds[m.part(*kinds)]}{_filter(m, source)}"


def grouping(m: Maker, keys: list[str]) -> str:
    """Return the text after GROUP BY: the keys, or sets of them."""
    listed = ", ".join(keys)
    if not m.chance(0.15):
        return listed
    how = m.part("ROLLUP", "CUBE", "GROUPING SETS", "GROUPING SETS", "GROUP BY DISTINCT")
    if how == "GROUPING SETS":
        sets = [
            f"({listed})",
            *m.dice.sample([f"({key})" for key in keys], m.dice.randint(0, len(keys))),
        ]
        return f"GROUPING SETS ({', '.join([*sets, *m.one_of([[], ['()'], [f'ROLLUP ({keys[0]})']])])})"
    if how == "GROUP BY DISTINCT":
        return f"DISTINCT ROLLUP ({listed}), CUBE ({keys[-1]})"
    return f"{how} ({listed})"


def having(m: Maker, source: FromSource) -> str:
    """Return a condition over a group."""
    m.parts.add("having")
    term = of_family(m, source, "int", "int4").sql
    return m.one_of(
        [
            "count(*) > 1",
            "count(*) < 3",
            f"sum({term}) > 2",
            f"min({term}) IS NOT NULL",
            "NOT count(*) = 2",
        ]
    )


def _filter(m: Maker, source: FromSource) -> str:
    if not m.chance(0.25):
        return ""
    m.parts.add("filter clause")
    items = list(source.items)
    if len(items) > 1 and m.chance(0.3):
        one, other = m.dice.sample(items, 2)
        return f" FILTER (WHERE {comparison(m, one, other, '>')})"
    return f" FILTER (WHERE {predicate(m, m.one_of(items).columns)})"


def _extreme(m: Maker, source: FromSource) -> RandomTerm:
    if len(source.items) > 1 and m.chance(0.15):
        m.parts.add("extreme across")
        return across_int(m, source)
    term = m.one_of([term for term in source.terms if term.kind in COMPARED - {"bool", "uuid"}])
    return made(m, term) if m.chance(0.2) else term


def _number(m: Maker, source: FromSource) -> RandomTerm:
    if len(source.items) > 1 and m.chance(0.35):
        m.parts.add("number across")
        return across_int(m, source) if m.chance(0.6) else product(m, source)
    term = m.one_of([term for term in source.terms if term.family in ("int", "numeric", "float")])
    found = made(m, term) if m.chance(0.3) else term
    return found if found.family in ("int", "numeric", "float") else term
