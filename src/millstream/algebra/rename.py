"""Give the aliases of a Relation other names: two that mean the same then are the same.

Filter  "x"."a" > 1        Filter  "a0"."a" > 1
  Scan  t AS x               Scan  t AS a0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import (
    Aggregate,
    Call,
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
    """The same under aliases that only depend on where they stand."""
    found = dict.fromkeys(alias for node in relation.walk() for alias in _own(node))
    return renamed(relation, {alias: f"a{number}" for number, alias in enumerate(found)})


def _own(node: Relation) -> list[str]:
    if isinstance(node, Scan):
        return list(node.aliases)
    if isinstance(node, Expand):
        return [node.alias, node.expansion.alias]
    if isinstance(node, Scan | Project | UnionAll | Aggregate | Window | Limit | Recursion):
        return [node.alias]
    return [node.mark.alias] if isinstance(node, Join) and node.mark else []


def renamed(relation: Relation, aliases: Aliases) -> Relation:
    """The same with each alias replaced."""
    if isinstance(relation, Scan):
        made = tuple(_expansion(one, aliases) for one in relation.expansions)
        return Scan(relation.table, aliases[relation.alias], made)
    if isinstance(relation, Expand):
        expansion = _expansion(relation.expansion, aliases)
        return Expand(renamed(relation.input, aliases), expansion, aliases[relation.alias])
    if isinstance(relation, Filter):
        return Filter(renamed(relation.input, aliases), _expr(relation.predicate, aliases))
    if isinstance(relation, Project):
        return Project(renamed(relation.input, aliases), _named(relation.outputs, aliases), aliases[relation.alias])
    if isinstance(relation, Join):
        condition = _expr(relation.condition, aliases) if relation.condition else None
        mark = _ref(relation.mark, aliases) if relation.mark else None
        left, right = renamed(relation.left, aliases), renamed(relation.right, aliases)
        return Join(left, right, condition, relation.kind, mark)
    if isinstance(relation, UnionAll):
        parts = tuple(renamed(part, aliases) for part in relation.parts)
        return replace(relation, parts=parts, alias=aliases[relation.alias])
    if isinstance(relation, Window):
        keys = tuple(_expr(key, aliases) for key in relation.keys)
        calls, alias = _named(relation.calls, aliases), aliases[relation.alias]
        return Window(renamed(relation.input, aliases), keys, calls, alias)
    if isinstance(relation, Recursion):
        base, step = renamed(relation.base, aliases), renamed(relation.step, aliases)
        return replace(relation, base=base, step=step, alias=aliases[relation.alias])
    if isinstance(relation, Limit):
        order = tuple(Order(_expr(one.expr, aliases), one.how) for one in relation.order)
        return Limit(renamed(relation.input, aliases), order, relation.limit, aliases[relation.alias])
    assert isinstance(relation, Aggregate), f"unexpected {type(relation).__name__}"
    measures = tuple(Measure(one.name, one.call.substitute(_refs(one.call, aliases))) for one in relation.measures)
    named = _named(relation.keys, aliases)
    return Aggregate(renamed(relation.input, aliases), named, measures, aliases[relation.alias])


def _expansion(one: Expansion, aliases: Aliases) -> Expansion:
    over = {ref: Expr(_ref(ref, aliases).sql) for ref in one.refs()}
    return replace(one.substitute(over), alias=aliases[one.alias])


def _ref(ref: Ref, aliases: Aliases) -> Ref:
    return Ref(aliases[ref.alias], ref.column)


def _expr(expression: Expr, aliases: Aliases) -> Expr:
    return expression.substitute({ref: Expr(_ref(ref, aliases).sql) for ref in expression.refs})


def _refs(call: Call, aliases: Aliases) -> dict[Ref, Expr]:
    return {ref: Expr(_ref(ref, aliases).sql) for part in call.parts() for ref in part.refs}


def _named(outputs: tuple[Named, ...], aliases: Aliases) -> tuple[Named, ...]:
    return tuple(Named(one.name, _expr(one.expr, aliases)) for one in outputs)
