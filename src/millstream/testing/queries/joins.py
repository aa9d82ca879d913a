"""FROM clauses: items joined in every way, inner and outer, nested in parentheses."""

from __future__ import annotations

from millstream.testing.queries.conditions import comparison, predicate, tie
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import FromSource, Item

OUTER = ("LEFT", "LEFT", "LEFT", "RIGHT", "FULL")


def source(m: Maker, most: int = 4) -> FromSource:
    """Return a FROM clause of one to four items."""
    number = min(most, m.one_of([1, 1, 2, 2, 2, 3, 3, 4]))
    with m.deeper():
        items = [m.item() for _ in range(number)]
    m.parts.add(f"{number} tables")
    if number == 1:
        return FromSource(items[0].sql, tuple(items))
    return commas(m, items) if m.chance(0.15) else _joined(m, items)


def commas(m: Maker, items: list[Item]) -> FromSource:
    """Return items side by side, joined in WHERE."""
    ties = [tie(m, m.one_of(items[:place]), item) for place, item in enumerate(items[1:], 1)]
    return FromSource(
        ", ".join(item.sql for item in items), tuple(items), tuple(filter(None, ties))
    )


def _joined(m: Maker, items: list[Item]) -> FromSource:
    """Return one join after the other; sometimes two items are in parentheses."""
    text, there, padded, waiting = items[0].sql, [items[0]], False, items[1:]
    conditions = list[str]()
    while waiting:
        item = waiting.pop(0)
        kind = m.one_of(OUTER) if m.chance(0.45) else "INNER"
        m.parts.add(f"{kind} join")
        if len(there) == 1 and m.chance(0.1):
            m.parts.add(f"{kind} using")
            named = m.one_of(["", " AS merged"])
            text += f" {kind} JOIN {item.sql} USING ({'cid, ' if m.cased else ''}j){named}"
        elif kind == "INNER" and m.chance(0.15):
            text += f" CROSS JOIN {item.sql}"
            conditions.append(tie(m, m.one_of(there), item))
        else:
            right, more = _right(m, item, waiting)
            text += f" {kind} JOIN {right} ON {_on(m, m.one_of(there), item, kind)}"
            there += more
        there.append(item)
        padded = padded or kind in ("RIGHT", "FULL")
    return FromSource(text, tuple(there), tuple(filter(None, conditions)), padded)


def _right(m: Maker, item: Item, waiting: list[Item]) -> tuple[str, list[Item]]:
    """Return the item, or the item joined with the next in parentheses."""
    if not waiting or not m.chance(0.25):
        return item.sql, []
    m.parts.add("join in parentheses")
    other, kind = waiting.pop(0), m.one_of(["INNER", "LEFT"])
    return f"({item.sql} {kind} JOIN {other.sql} ON {_on(m, item, other, kind)})", [other]


def _on(m: Maker, one: Item, other: Item, kind: str) -> str:
    """Return the condition of a join; PostgreSQL wants an equality in a full join."""
    parts = [tie(m, one, other, equal=kind == "FULL") or "true"]
    if kind != "INNER" and m.chance(0.3):
        m.parts.add("one side in ON")
        parts.append(predicate(m, m.one_of([one, other]).columns))
    if kind != "INNER" and m.chance(0.15):
        m.parts.add("OR in ON")
        parts.append(f"({comparison(m, one, other, '<')} OR {comparison(m, one, other, '=')})")
    return " AND ".join(parts)
