"""Write a SELECT whose clauses are not built together as a SELECT over a derived table.

    DISTINCT ON (a) ... ORDER BY a, b LIMIT 3      the DISTINCT ON below, ORDER BY and LIMIT above
    GROUP BY ROLLUP (a) with DISTINCT, LIMIT,      the groups below, the rest above
      DISTINCT ON or window calls
    GROUP BY (SELECT ...)                          the subquery as a column below, the groups above

PostgreSQL evaluates these clauses in the same order, so the rows are the same.

    SELECT a, count(*) AS n FROM t GROUP BY ROLLUP (a) ORDER BY count(*) LIMIT 3
    SELECT q.c0 AS a, q.c1 AS n FROM (SELECT a AS c0, count(*) AS c1 FROM t GROUP BY ROLLUP (a)) AS q
    ORDER BY q.c1 LIMIT 3
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import unwrapped
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.clauses.groups.grouping_sets import grouping_sets_of
from millstream.compiler.clauses.windows import inline_named_windows

# The clauses that stand above: all that PostgreSQL evaluates after the groups and windows.
_ABOVE = ("with_", "limit", "offset")


def split_steps(tree: exp.Expression, aggregates: Aggregates) -> exp.Expression:
    """Rewrite each SELECT of a syntax tree that needs it, in place; return the tree."""
    numbers = count()
    wrapper = exp.Paren(this=tree)
    for select in reversed(list(wrapper.find_all(exp.Select))):
        while rewritten := _split(select, aggregates, _Derived(f"__ms_step_{next(numbers)}")):
            select.replace(rewritten)
            select = rewritten
    changed = wrapper.this
    assert isinstance(changed, exp.Expression)
    return changed


class _Derived:
    """A derived table under construction: the expressions that it shows."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.shown = dict[str, exp.Expression]()

    def column(self, node: exp.Expression) -> exp.Expression:
        """Return the column that shows an expression."""
        inner = unwrapped(node)
        text = printed(inner)
        self.shown.setdefault(text, inner.copy())
        return exp.column(f"c{list(self.shown).index(text)}", self.alias, quoted=True)

    def item(self, select: exp.Select) -> exp.From:
        """Return the FROM with this table, made of a SELECT with another list."""
        listed = [
            exp.alias_(node, f"c{number}", quoted=True)
            for number, node in enumerate(self.shown.values())
        ]
        select.set("expressions", listed)
        alias = exp.TableAlias(this=exp.to_identifier(self.alias, quoted=True))
        return exp.From(this=exp.Subquery(this=select, alias=alias))


def _split(select: exp.Select, aggregates: Aggregates, derived: _Derived) -> exp.Select | None:
    """Return a SELECT in two steps; None if it needs one."""
    group = select.args.get("group")
    sets = grouping_sets_of(group) if group else None
    cuts = bool(select.args.get("limit") or select.args.get("offset"))
    if sets and (cuts or select.args.get("distinct") or any(_windows_in(select))):
        return _groups_below(inline_named_windows(select), derived)
    if cuts and _distinct_on(select):
        return _distinct_on_below(select, derived)
    if group and not sets and any(map(_is_subquery, group.expressions)):
        return _KeysBelow(select, aggregates, derived).rewritten()
    return None


def _distinct_on(select: exp.Select) -> list[exp.Expression]:
    distinct = select.args.get("distinct")
    on = distinct.args.get("on") if distinct else None
    return list(on.expressions) if on else []


def _is_subquery(node: exp.Expression) -> bool:
    return isinstance(unwrapped(node), exp.Subquery)


def _value(item: exp.Expression) -> exp.Expression:
    value = item.this if isinstance(item, exp.Alias) else item
    assert isinstance(value, exp.Expression)
    return value


def _named(item: exp.Expression, value: exp.Expression) -> exp.Expression:
    named: exp.Expression = exp.Alias(
        this=value, alias=exp.to_identifier(item.alias_or_name, quoted=True)
    )
    return named


def _terms(select: exp.Select) -> list[exp.Expression]:
    order = select.args.get("order")
    return list(order.expressions) if order else []


def _with_value(term: exp.Expression, value: exp.Expression) -> exp.Expression:
    """Return a term of ORDER BY with its direction, over another value."""
    changed = term.copy()
    changed.set("this", value)
    return changed


def _finished(select: exp.Select, outer: exp.Select, below: Iterable[str]) -> exp.Select:
    """Move clauses to the outer SELECT, and remove from the inner one those that stand above."""
    for clause in _ABOVE:
        outer.set(clause, select.args.get(clause))
    inner = outer.args["from_"].this.this
    for clause in (*_ABOVE, *below):
        inner.set(clause, None)
    return outer


def _distinct_on_below(select: exp.Select, derived: _Derived) -> exp.Select:
    items = [_named(item, derived.column(_value(item))) for item in select.expressions]
    order = [_with_value(term, derived.column(term.this)) for term in _terms(select)]
    outer = exp.Select(expressions=items, from_=derived.item(select.copy()))
    outer.set("order", exp.Order(expressions=order) if order else None)
    return _finished(select, outer, ())


def _groups_below(select: exp.Select, derived: _Derived) -> exp.Select:
    def above(node: exp.Expression) -> exp.Expression:
        return _above_groups(node, derived)

    items = [_named(item, above(_value(item))) for item in select.expressions]
    order = [_with_value(term, above(term.this)) for term in _terms(select)]
    on = [above(node) for node in _distinct_on(select)]
    outer = exp.Select(expressions=items, from_=derived.item(select.copy()))
    outer.set("order", exp.Order(expressions=order) if order else None)
    if select.args.get("distinct"):
        outer.set("distinct", exp.Distinct(on=exp.Tuple(expressions=on)) if on else exp.Distinct())
    return _finished(select, outer, ("distinct", "order", "windows"))


def _windows_in(select: exp.Select) -> Iterator[bool]:
    parts = [*select.expressions, *_terms(select), *_distinct_on(select)]
    return (True for part in parts if _has_window(part))


def _has_window(node: exp.Expression) -> bool:
    if isinstance(node, exp.Window):
        return True
    if isinstance(node, exp.Query):
        return False
    return any(_has_window(child) for child in node.iter_expressions())


def _above_groups(node: exp.Expression, derived: _Derived) -> exp.Expression:
    """Return an expression over the groups: what is below its window calls becomes columns."""
    if not _has_window(node):
        varies = node.find(exp.Column, exp.Func, exp.Query) is not None
        return derived.column(node) if varies else node.copy()
    changed = node.copy()
    _replace_below_windows(changed, derived)
    return changed


def _replace_below_windows(node: exp.Expression, derived: _Derived) -> None:
    """Replace what is below the window calls of an expression, in place."""
    own_call = isinstance(node, exp.Window)
    for child in list(node.iter_expressions()):
        is_call = own_call and child.arg_key == "this"
        if is_call or isinstance(child, exp.Order | exp.Ordered | exp.Where | exp.WindowSpec):
            _replace_arguments(child, derived)
        else:
            child.replace(_above_groups(child, derived))


def _replace_arguments(node: exp.Expression, derived: _Derived) -> None:
    """Replace the arguments of a window call, its FILTER, its order; the bounds of a frame stay."""
    if isinstance(node, exp.WindowSpec | exp.Identifier):
        return
    for child in list(node.iter_expressions()):
        names = isinstance(child, exp.Identifier)
        structure = isinstance(child, exp.Ordered | exp.Where | exp.Order | exp.Distinct)
        call = isinstance(node, exp.Filter | exp.Dot) and child.arg_key in ("this", "expression")
        if structure or (call and not names):
            _replace_arguments(child, derived)
        elif not names:
            child.replace(_above_groups(child, derived))


class _KeysBelow:
    """Rewrites GROUP BY (SELECT ...): columns and keys are computed below the groups."""

    def __init__(self, select: exp.Select, aggregates: Aggregates, derived: _Derived) -> None:
        self.select = select
        self.aggregates = aggregates
        self.derived = derived
        self.keys = {printed(unwrapped(key)) for key in select.args["group"].expressions}
        self.dependent = dict[str, exp.Expression]()
        """Columns that are no keys: they depend on a primary key that is one."""
        self.is_possible = True

    def rewritten(self) -> exp.Select | None:
        select = self.select
        items = [_named(item, self._over(_value(item))) for item in select.expressions]
        order = [_with_value(term, self._over(term.this)) for term in _terms(select)]
        having = select.args.get("having")
        condition = self._over(having.this) if having else None
        keys = [self.derived.column(key) for key in select.args["group"].expressions]
        if not self.is_possible or select.args.get("distinct") or select.args.get("windows"):
            return None
        outer = exp.Select(expressions=items, from_=self.derived.item(select.copy()))
        outer.set("group", exp.Group(expressions=[*keys, *self.dependent.values()]))
        outer.set("having", exp.Having(this=condition) if condition else None)
        outer.set("order", exp.Order(expressions=order) if order else None)
        return _finished(select, outer, ("group", "having", "order"))

    def _over(self, node: exp.Expression, *, in_call: bool = False) -> exp.Expression:
        """Return an expression over the derived table."""
        if not in_call and printed(unwrapped(node)) in self.keys:
            return self.derived.column(node)
        if isinstance(node, exp.Query | exp.Window):
            self.is_possible = False
            return node.copy()
        if isinstance(node, exp.Column):
            column = self.derived.column(node)
            if not in_call:
                self.dependent.setdefault(printed(node), column)
            return column
        changed = node.copy()
        inside = in_call or self.aggregates.is_call(node)
        for child in list(changed.iter_expressions()):
            child.replace(self._over(child, in_call=inside))
        return changed
