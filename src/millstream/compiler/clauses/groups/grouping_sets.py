"""Expand GROUPING SETS, ROLLUP and CUBE into grouping sets.

    GROUP BY a, ROLLUP (b, c)    ->    (a, b, c), (a, b), (a)

Each set becomes an aggregate of its own, and the query is their UNION ALL. A key that is not in the
set is NULL, and its bit in GROUPING(...) is 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product

from sqlglot import exp

from millstream.algebra.expr import Expr, transform, unwrapped
from millstream.algebra.types import PgType
from millstream.compiler.clauses.groups.grouping import Aggregates

Set = tuple[exp.Expression, ...]


def grouping_sets_of(group: exp.Group) -> list[Set] | None:
    """Return the grouping sets of a GROUP BY; None for a plain one.

    GROUP BY () is one empty set.
    """
    items = list(group.expressions)
    for clause in ("grouping_sets", "rollup", "cube"):
        items += group.args.get(clause) or ()
    has_sets = any(isinstance(item, exp.GroupingSets | exp.Rollup | exp.Cube) for item in items)
    if not has_sets and any(map(_keys, items)):
        return None
    sets = [_united(chosen) for chosen in product(*map(_sets, items))]
    return _distinct(sets) if _says_distinct(group) else sets


def _says_distinct(group: exp.Group) -> bool:
    """True for GROUP BY DISTINCT: sqlglot has GROUP BY ALL as `all`, and DISTINCT as its opposite."""
    return group.args.get("all") is False


def _distinct(sets: list[Set]) -> list[Set]:
    """Return each set once; the order of keys does not matter."""
    by_texts = dict[frozenset[str], Set]()
    for keys in sets:
        by_texts.setdefault(frozenset(Expr.of(unwrapped(key)).sql for key in keys), keys)
    return list(by_texts.values())


def _sets(item: exp.Expression) -> list[Set]:
    """Return the grouping sets of one item of GROUP BY, the longest first."""
    if isinstance(item, exp.GroupingSets):
        return [keys for inner in item.expressions for keys in _sets(inner)]
    elements = [_keys(element) for element in item.expressions]
    lengths = range(len(elements), -1, -1)
    if isinstance(item, exp.Rollup):
        return [_united(elements[:length]) for length in lengths]
    if isinstance(item, exp.Cube):
        return [_united(chosen) for length in lengths for chosen in combinations(elements, length)]
    return [_keys(item)]


def _united(sets: Sequence[Set]) -> Set:
    return tuple(key for keys in sets for key in keys)


def _keys(item: exp.Expression) -> Set:
    """Return the keys of one element: (a, b), (a) or a."""
    inner = unwrapped(item)
    return tuple(inner.expressions) if isinstance(inner, exp.Tuple) else (inner,)


def replace_grouping_calls(node: exp.Expression, present: set[str]) -> exp.Expression:
    """Replace each GROUPING(...) by its number in one set; `present` are the texts of the set's
    keys.
    """

    def replace(part: exp.Expression) -> exp.Expression:
        if not (isinstance(part, exp.Anonymous | exp.Func) and _is_grouping(part)):
            return part
        bits = ["0" if Expr.of(unwrapped(key)).sql in present else "1" for key in part.expressions]
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


def select_for_set(
    select: exp.Select, keys: Set, every: Mapping[str, PgType], aggregates: Aggregates
) -> exp.Select:
    """Return the SELECT grouped by one set; keys of `every` that are not in it become NULLs of
    their type.
    """
    present = {Expr.of(key).sql for key in keys}
    alias = _only_alias(select)
    absent = {key: type_ for key, type_ in every.items() if key not in present}
    nulls = {
        _unqualified(Expr(key).tree, alias): f"CAST(NULL AS {type_.name})"
        for key, type_ in absent.items()
    }
    copy = select.copy()

    def null_if_absent(node: exp.Expression) -> exp.Expression:
        null = (
            None
            if isinstance(node, exp.Identifier)
            else nulls.get(_unqualified(unwrapped(node), alias))
        )
        return Expr(null).node if null and not _inside_a_call(node, aggregates) else node

    def of_set(node: exp.Expression) -> exp.Expression:
        return transform(replace_grouping_calls(node, present), null_if_absent)

    copy.set("expressions", [of_set(item) for item in copy.expressions])
    if having := copy.args.get("having"):
        copy.set("having", exp.Having(this=of_set(having.this)))
    copy.set("group", exp.Group(expressions=[key.copy() for key in keys]) if keys else None)
    copy.set("order", None)
    if not keys and not aggregates.group(copy):
        # The empty set has one row, even without an aggregate in the select list.
        copy.set("having", exp.Having(this=Expr("count(*) >= 0").node))
    return copy


def _only_alias(select: exp.Select) -> str:
    """Return the alias of the one item of FROM; '' if there are several."""
    clause = select.args.get("from_")
    return str(clause.this.alias_or_name) if clause and not select.args.get("joins") else ""


def _unqualified(node: exp.Expression, alias: str) -> str:
    """Return the text of an expression, with the columns of one item without its alias.

    If FROM has one item, the server qualifies its columns in subqueries and nowhere else.
    """

    def bare(part: exp.Expression) -> exp.Expression:
        own = alias and isinstance(part, exp.Column) and part.table == alias
        return exp.Column(this=part.this) if own else part

    return Expr.of(transform(node, bare)).sql


def _inside_a_call(node: exp.Expression, aggregates: Aggregates) -> bool:
    """Return True if a node is inside an aggregate's arguments: there a key is a column in every
    set.
    """
    parent = node.parent
    while isinstance(parent, exp.Expression) and not isinstance(parent, exp.Select):
        if aggregates.is_call(parent):
            return True
        parent = parent.parent
    return False
