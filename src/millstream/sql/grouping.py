"""Expressions over a group: keys and aggregate calls become columns of an Aggregate."""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import Expr, unwrapped
from millstream.algebra.relation import Aggregate, Call, Measure, Named, Relation


class Grouping:
    """Gathers what the select list, HAVING and the subqueries in them need of the groups."""

    def __init__(self, keys: tuple[Expr, ...], alias: str) -> None:
        self.alias = alias
        self.keys = {key.sql: f"k{number}" for number, key in enumerate(keys)}
        self.measures: dict[Call, str] = {}
        self.known: set[str] = set()
        """Aliases that are not of the grouped rows: subqueries joined to the groups."""

    def over(self, expression: Expr) -> Expr:
        """The expression in terms of the groups."""
        return Expr.of(self._rewritten(expression.node))

    def relation(self, relation: Relation) -> Aggregate:
        """The groups, with all that was asked of them."""
        keys = tuple(Named(name, Expr(text)) for text, name in self.keys.items())
        measures = tuple(Measure(name, call) for call, name in self.measures.items())
        return Aggregate(relation, keys, measures, self.alias)

    def _rewritten(self, node: exp.Expression) -> exp.Expression:
        if name := self.keys.get(Expr.of(unwrapped(node)).sql):
            return Expr.ref(self.alias, name).node
        if isinstance(node, exp.Column):
            if node.table in self.known:
                return node
            # Not a key, yet allowed: it depends on a primary key among the keys, so it may be one too.
            name = self.keys.setdefault(Expr.of(node).sql, f"k{len(self.keys)}")
            return Expr.ref(self.alias, name).node
        if isinstance(node, exp.Filter | exp.AggFunc):
            name = self.measures.setdefault(call_of(node), f"m{len(self.measures)}")
            return Expr.ref(self.alias, name).node
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expression):
                node.set(key, self._rewritten(value))
            elif isinstance(value, list):
                node.set(key, [self._rewritten(v) if isinstance(v, exp.Expression) else v for v in value])
        return node


def call_of(node: exp.Expression) -> Call:
    """The aggregate call that a node of the syntax tree is."""
    if isinstance(node, exp.Filter):
        inner = call_of(node.this)
        return Call(inner.function, inner.argument, Expr.of(unwrapped(node.expression.this)))
    function = node.sql_name().lower() if isinstance(node, exp.Func) else node.name.lower()
    argument = node.this
    if argument is None or isinstance(argument, exp.Star):
        return Call(function, None)
    return Call(function, Expr.of(unwrapped(argument)))


def aggregates(select: exp.Select) -> bool:
    """Does a SELECT group its rows?"""
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(
        node.find_ancestor(exp.Select) is select for item in select.expressions for node in item.find_all(exp.AggFunc)
    )
