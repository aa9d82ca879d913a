"""Rename the aliases of a Relation canonically, so that relations with the same meaning are equal.

Filter  "x"."a" > 1        Filter  "a0"."a" > 1
  Scan  t AS x               Scan  t AS a0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

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
    return _Renaming(aliases).relation(relation)


@dataclass(frozen=True)
class _Renaming:
    aliases: Aliases

    def relation(self, node: Relation) -> Relation:
        match node:
            case Scan(table, alias, expansions):
                return Scan(table, self.aliases[alias], tuple(map(self.expansion, expansions)))
            case Expand(input_, expansion, alias):
                return Expand(self.relation(input_), self.expansion(expansion), self.aliases[alias])
            case Filter(input_, predicate):
                return Filter(self.relation(input_), self.expr(predicate))
            case Project(input_, outputs, alias):
                return Project(self.relation(input_), self.named(outputs), self.aliases[alias])
            case Join():
                return self.join(node)
            case UnionAll(parts, alias=alias):
                return replace(
                    node, parts=tuple(map(self.relation, parts)), alias=self.aliases[alias]
                )
            case Window(input_, keys, calls, alias):
                keys = tuple(map(self.expr, keys))
                return Window(self.relation(input_), keys, self.named(calls), self.aliases[alias])
            case Recursion(base=base, step=step, alias=alias):
                return replace(
                    node,
                    base=self.relation(base),
                    step=self.relation(step),
                    alias=self.aliases[alias],
                )
            case Limit(input_, order, limit, alias):
                order = tuple(Order(self.expr(term.expr), term.how) for term in order)
                return Limit(self.relation(input_), order, limit, self.aliases[alias])
            case Aggregate(input_, keys, measures, alias):
                renamed = tuple(map(self.measure, measures))
                return Aggregate(
                    self.relation(input_), self.named(keys), renamed, self.aliases[alias]
                )
        raise AssertionError(f"unexpected {type(node).__name__}")

    def join(self, join: Join) -> Join:
        condition = self.expr(join.condition) if join.condition else None
        mark = self.ref(join.mark) if join.mark else None
        return Join(self.relation(join.left), self.relation(join.right), condition, join.kind, mark)

    def expansion(self, expansion: Expansion) -> Expansion:
        return replace(
            expansion.substitute(self.columns(expansion.refs())),
            alias=self.aliases[expansion.alias],
        )

    def measure(self, measure: Measure) -> Measure:
        refs = {ref for part in measure.call.parts() for ref in part.refs}
        return Measure(measure.name, measure.call.substitute(self.columns(refs)))

    def named(self, outputs: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(output.name, self.expr(output.expr)) for output in outputs)

    def expr(self, expression: Expr) -> Expr:
        return expression.substitute(self.columns(expression.refs))

    def columns(self, refs: Iterable[Ref]) -> dict[Ref, Expr]:
        return {ref: Expr(self.ref(ref).sql) for ref in refs}

    def ref(self, ref: Ref) -> Ref:
        return Ref(self.aliases[ref.alias], ref.column)
