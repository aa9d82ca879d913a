"""Rename the aliases of a Relation canonically, so that relations with the same meaning are equal.

Filter  "x"."a" > 1        Filter  "a0"."a" > 1
  Scan  t AS x               Scan  t AS a0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import (
    Aggregate,
    Expand,
    Expansion,
    Filter,
    Join,
    Limit,
    Measure,
    Named,
    Order,
    Project,
    Recursion,
    Relation,
    Scan,
    UnionAll,
    Window,
)

Aliases = Mapping[str, str]


def canonical(relation: Relation) -> Relation:
    """Rename the aliases to a0, a1, ... in the order in which the tree defines them."""
    aliases = dict.fromkeys(alias for node in relation.walk() for alias in _defined_aliases(node))
    return rename_aliases(relation, {alias: f"a{number}" for number, alias in enumerate(aliases)})


def _defined_aliases(node: Relation) -> list[str]:
    if isinstance(node, Scan):
        return list(node.aliases)
    if isinstance(node, Expand):
        return [node.alias, node.expansion.alias]
    if isinstance(node, Scan | Project | UnionAll | Aggregate | Window | Limit | Recursion):
        return [node.alias]
    return [node.mark.alias] if isinstance(node, Join) and node.mark else []


def rename_aliases(relation: Relation, aliases: Aliases) -> Relation:
    """Replace each alias, where it is defined and in each expression that refers to it."""
    if isinstance(relation, Scan):
        expansions = tuple(_expansion(expansion, aliases) for expansion in relation.expansions)
        return Scan(relation.table, aliases[relation.alias], expansions)
    if isinstance(relation, Expand):
        expansion = _expansion(relation.expansion, aliases)
        return Expand(rename_aliases(relation.input, aliases), expansion, aliases[relation.alias])
    if isinstance(relation, Filter):
        return Filter(rename_aliases(relation.input, aliases), _expr(relation.predicate, aliases))
    if isinstance(relation, Project):
        return Project(
            rename_aliases(relation.input, aliases), _named(relation.outputs, aliases), aliases[relation.alias]
        )
    if isinstance(relation, Join):
        condition = _expr(relation.condition, aliases) if relation.condition else None
        mark = _ref(relation.mark, aliases) if relation.mark else None
        left, right = rename_aliases(relation.left, aliases), rename_aliases(relation.right, aliases)
        return Join(left, right, condition, relation.kind, mark)
    if isinstance(relation, UnionAll):
        parts = tuple(rename_aliases(part, aliases) for part in relation.parts)
        return replace(relation, parts=parts, alias=aliases[relation.alias])
    if isinstance(relation, Window):
        keys = tuple(_expr(key, aliases) for key in relation.keys)
        calls, alias = _named(relation.calls, aliases), aliases[relation.alias]
        return Window(rename_aliases(relation.input, aliases), keys, calls, alias)
    if isinstance(relation, Recursion):
        base, step = rename_aliases(relation.base, aliases), rename_aliases(relation.step, aliases)
        return replace(relation, base=base, step=step, alias=aliases[relation.alias])
    if isinstance(relation, Limit):
        order = tuple(Order(_expr(item.expr, aliases), item.how) for item in relation.order)
        return Limit(rename_aliases(relation.input, aliases), order, relation.limit, aliases[relation.alias])
    assert isinstance(relation, Aggregate), f"unexpected {type(relation).__name__}"
    measures = tuple(_measure(measure, aliases) for measure in relation.measures)
    named_keys = _named(relation.keys, aliases)
    return Aggregate(rename_aliases(relation.input, aliases), named_keys, measures, aliases[relation.alias])


def _expansion(expansion: Expansion, aliases: Aliases) -> Expansion:
    over = {ref: Expr(_ref(ref, aliases).sql) for ref in expansion.refs()}
    return replace(expansion.substitute(over), alias=aliases[expansion.alias])


def _ref(ref: Ref, aliases: Aliases) -> Ref:
    return Ref(aliases[ref.alias], ref.column)


def _expr(expression: Expr, aliases: Aliases) -> Expr:
    return expression.substitute({ref: Expr(_ref(ref, aliases).sql) for ref in expression.refs})


def _measure(measure: Measure, aliases: Aliases) -> Measure:
    refs = (ref for part in measure.call.parts() for ref in part.refs)
    over = {ref: Expr(_ref(ref, aliases).sql) for ref in refs}
    return Measure(measure.name, measure.call.substitute(over))


def _named(outputs: tuple[Named, ...], aliases: Aliases) -> tuple[Named, ...]:
    return tuple(Named(output.name, _expr(output.expr, aliases)) for output in outputs)
