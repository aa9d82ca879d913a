"""Expand GROUPING SETS, ROLLUP and CUBE into grouping sets.

    GROUP BY a, ROLLUP (b, c)    ->    (a, b, c), (a, b), (a)

Each set becomes an aggregate of its own, and the query is their UNION ALL. A key that is not in the set is NULL, and
its bit in GROUPING(...) is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product

from sqlglot import exp

from millstream.algebra.expr import Expr, transform, unwrapped
from millstream.algebra.types import PgType
from millstream.compiler.clauses.groups.grouping import Aggregates

Set = tuple[exp.Expression, ...]


def grouping_sets_of(group: exp.Group) -> list[Set] | None:
    """Return the grouping sets of a GROUP BY; None for a plain one."""
    items = [
        *group.expressions,
        *(one for kind in ("grouping_sets", "rollup", "cube") for one in group.args.get(kind) or ()),
    ]
    if not any(isinstance(item, exp.GroupingSets | exp.Rollup | exp.Cube) for item in items):
        return None
    sets = [tuple(key for part in parts for key in part) for parts in product(*map(_sets, items))]
    return _distinct(sets) if _says_distinct(group) else sets


def _says_distinct(group: exp.Group) -> bool:
    """True for GROUP BY DISTINCT: sqlglot has GROUP BY ALL as `all`, and DISTINCT as its opposite."""
    return group.args.get("all") is False


def _distinct(sets: list[Set]) -> list[Set]:
    """Return each set once; the order of keys does not matter."""
    found = dict[frozenset[str], Set]()
    for keys in sets:
        found.setdefault(frozenset(Expr.of(unwrapped(key)).sql for key in keys), keys)
    return list(found.values())


def _sets(item: exp.Expression) -> list[Set]:
    if isinstance(item, exp.GroupingSets):
        return [one for inner in item.expressions for one in _sets(inner)]
    if isinstance(item, exp.Rollup):
        parts = [_keys(one) for one in item.expressions]
        return [tuple(key for part in parts[:n] for key in part) for n in range(len(parts), -1, -1)]
    if isinstance(item, exp.Cube):
        parts = [_keys(one) for one in item.expressions]
        chosen = [one for n in range(len(parts), -1, -1) for one in combinations(parts, n)]
        return [tuple(key for part in one for key in part) for one in chosen]
    return [_keys(item)]


def _keys(item: exp.Expression) -> Set:
    """Return the keys of one element: (a, b), (a) or a."""
    inner = unwrapped(item)
    return tuple(inner.expressions) if isinstance(inner, exp.Tuple) else (inner,)


def replace_grouping_calls(node: exp.Expression, present: set[str]) -> exp.Expression:
    """Replace each GROUPING(...) by its number in one set; `present` are the texts of the set's keys."""

    def replace(part: exp.Expression) -> exp.Expression:
        if not (isinstance(part, exp.Anonymous | exp.Func) and _is_grouping(part)):
            return part
        bits = ["0" if Expr.of(unwrapped(one)).sql in present else "1" for one in part.expressions]
        return exp.Literal.number(int("".join(bits), 2))

    return transform(node, replace)


def _is_grouping(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.name).lower() == "grouping"


def all_keys(sets: list[Set]) -> list[str]:
    """Return the text of each key of any set, each once."""
    return list(dict.fromkeys(Expr.of(key).sql for keys in sets for key in keys))


def select_of_keys(select: exp.Select, sets: list[Set]) -> exp.Select:
    """Return a SELECT of the keys of all sets from the same FROM, so that the server can type them."""
    bare = select.copy()
    listed = [exp.alias_(Expr(key).node, f"c{number}") for number, key in enumerate(all_keys(sets))]
    bare.set("expressions", listed)
    for part in ("group", "having", "order"):
        bare.set(part, None)
    return bare


def select_for_set(select: exp.Select, keys: Set, every: Mapping[str, PgType], aggregates: Aggregates) -> exp.Select:
    """Return the SELECT grouped by one set; keys of `every` that are not in it become NULLs of their type."""
    present = {Expr.of(key).sql for key in keys}
    alias = _only_alias(select)
    absent = {key: type_ for key, type_ in every.items() if key not in present}
    nulls = {_unqualified(Expr(key).tree, alias): f"CAST(NULL AS {type_.name})" for key, type_ in absent.items()}
    copy = select.copy()

    def null(node: exp.Expression) -> exp.Expression:
        found = nulls.get(_unqualified(unwrapped(node), alias)) if not isinstance(node, exp.Identifier) else None
        return Expr(found).node if found and not _inside_a_call(node, aggregates) else node

    copy.set("expressions", [transform(replace_grouping_calls(one, present), null) for one in copy.expressions])
    if having := copy.args.get("having"):
        copy.set("having", exp.Having(this=transform(replace_grouping_calls(having.this, present), null)))
    copy.set("group", exp.Group(expressions=[key.copy() for key in keys]) if keys else None)
    copy.set("order", None)
    if not keys and not aggregates.group(copy):
        # The empty set has one row, even without an aggregate in the select list.
        copy.set("having", exp.Having(this=Expr("count(*) >= 0").node))
    return copy


def _only_alias(select: exp.Select) -> str:
    """The alias of the one item of FROM; empty where there are several."""
    clause = select.args.get("from_")
    return str(clause.this.alias_or_name) if clause and not select.args.get("joins") else ""


def _unqualified(node: exp.Expression, alias: str) -> str:
    """The text of an expression, its columns of this item without the alias.

    Where FROM has one item, the server qualifies its columns in subqueries and nowhere else.
    """

    def bare(part: exp.Expression) -> exp.Expression:
        own = alias and isinstance(part, exp.Column) and part.table == alias
        return exp.Column(this=part.this) if own else part

    return Expr.of(transform(node, bare)).sql


def _inside_a_call(node: exp.Expression, aggregates: Aggregates) -> bool:
    """Return True if a node is inside an aggregate's arguments: there a key is a column in every set."""
    parent = node.parent
    while isinstance(parent, exp.Expression) and not isinstance(parent, exp.Select):
        if aggregates.called(parent):
            return True
        parent = parent.parent
    return False
