"""Expressions over groups: keys and aggregate calls become columns of an Aggregate.

    SELECT t.a + 1, sum(t.b) FROM t GROUP BY t.a

    expression      over the groups g        collected
    t.a + 1         g.k0 + 1                 key      k0 = t.a
    sum(t.b)        g.m0                     measure  m0 = sum(t.b)

Expressions are rewritten one by one; when all are, the Aggregate is built with what they have
collected.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from sqlglot import exp

from millstream.algebra.expr import Expr, unwrapped
from millstream.algebra.relation import Aggregate, Call, Measure, Named, Relation
from millstream.algebra.special_calls import SpecialCall


class Grouping:
    """Collects the keys and measures that the select list, HAVING and their subqueries use: a
    builder.
    """

    def __init__(self, keys: tuple[Expr, ...], alias: str, aggregates: Aggregates) -> None:
        self.alias = alias
        self.aggregates = aggregates
        self.keys = {key.sql: f"k{number}" for number, key in enumerate(keys)}
        self.measures: dict[Call, str] = {}
        self.computed: dict[str, Expr] = {}
        """The text of each key that is computed before grouping, with the column that holds it."""
        self.joined_aliases: set[str] = set()
        """Aliases of subqueries that are joined to the groups: their columns are not grouped."""

    def over(self, expression: Expr) -> Expr:
        """Return an expression over the rows as one over the groups; collect the keys and measures
        it uses.
        """
        return Expr.of(self._rewrite(expression.node))

    def relation(self, relation: Relation) -> Aggregate:
        """Return the groups, with all keys and measures collected so far."""
        keys = tuple(
            Named(name, self.computed.get(text, Expr(text))) for text, name in self.keys.items()
        )
        measures = tuple(Measure(name, call) for call, name in self.measures.items())
        return Aggregate(relation, keys, measures, self.alias)

    def _rewrite(self, node: exp.Expression) -> exp.Expression:
        """Replace keys and aggregate calls in a syntax tree, in place; a column outside of them
        becomes a key.
        """
        if name := self.keys.get(Expr.of(unwrapped(node)).sql):
            return Expr.ref(self.alias, name).node
        if isinstance(node, exp.Column):
            if node.table in self.joined_aliases:
                return node
            # Functionally dependent on a primary key among the keys, so it may be a key too.
            name = self.keys.setdefault(Expr.of(node).sql, f"k{len(self.keys)}")
            return Expr.ref(self.alias, name).node
        if isinstance(node, exp.Window):
            # A window function is no aggregate, but its arguments may contain one.
            call = node.this
            if isinstance(call, exp.Filter):
                call.set("expression", self._rewrite(call.expression))
                call = call.this
            self._children(call)
            self._children(node, "this")
            return node
        if self.aggregates.is_call(node):
            name = self.measures.setdefault(aggregate_call(node), f"m{len(self.measures)}")
            return Expr.ref(self.alias, name).node
        self._children(node)
        return node

    def _children(self, node: exp.Expression, *but: str) -> None:
        """Rewrite the parts of a node, except for these arguments."""
        for key, value in list(node.args.items()):
            if key in but:
                continue
            if isinstance(value, exp.Expression):
                node.set(key, self._rewrite(value))
            elif isinstance(value, list):
                node.set(
                    key,
                    [
                        self._rewrite(part) if isinstance(part, exp.Expression) else part
                        for part in value
                    ],
                )


PLAIN = frozenset({"count", "sum", "avg", "min", "max"})


def aggregate_call(node: exp.Expression) -> Call:
    """Return the aggregate call of a syntax node, as text unless it is a plain count, sum, avg, min
    or max.
    """
    inner, where = (
        (node.this, node.expression.this) if isinstance(node, exp.Filter) else (node, None)
    )
    name = function_name(inner)
    if name not in PLAIN or not isinstance(inner, exp.AggFunc) or inner.expressions:
        return Call(name, None, None, Expr.of(node))
    argument = inner.this
    if isinstance(argument, exp.Distinct | exp.Order):
        return Call(name, None, None, Expr.of(node))
    filtered = Expr.of(unwrapped(where)) if where is not None else None
    if argument is None or isinstance(argument, exp.Star):
        return Call(name, None, filtered)
    return Call(name, Expr.of(unwrapped(argument)), filtered)


def function_name(node: exp.Expr) -> str:
    """Return the name of the called function, with its schema if it is written; '' if the node is
    no call.
    """
    if isinstance(node, exp.WithinGroup | exp.Filter):
        return function_name(node.this)
    if isinstance(node, exp.Dot):
        return f"{node.this.name}.{function_name(node.expression)}"
    if isinstance(node, exp.Anonymous):
        return str(node.name)
    if isinstance(node, SpecialCall):
        return node.name_of_call.lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


class Aggregates:
    """The aggregate calls of a query; `names` asks the server for the names of aggregates."""

    def __init__(self, names: Callable[[], Container[str]]) -> None:
        self.names = names

    def is_call(self, node: exp.Expression) -> bool:
        """Return True if a node is an aggregate call, together with its FILTER and WITHIN GROUP."""
        if isinstance(node, exp.Window):
            return False
        if isinstance(node, exp.Filter | exp.WithinGroup):
            return self.is_call(node.this)
        if isinstance(node, exp.AggFunc):
            return True
        name = function_name(node) if isinstance(node, exp.Anonymous | exp.Dot) else ""
        return (
            name == "array_agg" or name in self.names()
        )  # ARRAY(subquery) calls it without its name in the query

    def group(self, select: exp.Select) -> bool:
        """Return True if a SELECT groups its rows: by a clause, or by an aggregate in any clause
        after WHERE.
        """
        if select.args.get("group") or select.args.get("having"):
            return True
        clauses = (select.args.get(name) for name in ("order", "distinct"))
        items = [*select.expressions, *filter(None, clauses), *(select.args.get("windows") or ())]
        return any(self._in(item) for item in items)

    def _in(self, node: exp.Expression) -> bool:
        if isinstance(node, exp.Select | exp.SetOperation):
            return False
        if isinstance(node, exp.Window):
            return any(self._in(part) for part in _applied_to(node))
        return self.is_call(node) or any(self._in(child) for child in node.iter_expressions())


def _applied_to(window: exp.Window) -> list[exp.Expression]:
    """Return the arguments, the FILTER and the window definition of a window call."""
    call = window.this
    others = [part for part in window.iter_expressions() if part is not call]
    if isinstance(call, exp.Filter):
        others.append(call.expression)
        call = call.this
    call = call.expression if isinstance(call, exp.Dot) else call
    return [*others, *call.iter_expressions()]
