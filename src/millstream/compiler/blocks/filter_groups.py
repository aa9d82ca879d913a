"""Filter rows before they are grouped, by the conditions on the keys of their groups.

    SELECT * FROM (SELECT DISTINCT id, (SELECT y FROM v WHERE v.k = t.id) AS x FROM t) AS q WHERE
    q.id < 50

    Filter  id < 50                                Filter  id < 50
      Aggregate  id, x                    ->         Aggregate  id, x
        t, the scalar subquery as x                    Filter  id < 50
                                                         t, the scalar subquery as x

A condition on keys alone is true of all rows of a group or of none, and PostgreSQL evaluates it
first. The result is the same, with two exceptions; the rule applies to these only, and the rows of
other groups are kept, for other readers too:

    computing a group raises an error         as a scalar subquery of several rows does, or 10 / x
    the condition looks at how a key is       HAVING scale(n) = 1: the group of 1.0 and 1.00 has
    written                                   the rows with 1.0 only

The partitions of a window are such groups. In PostgreSQL a condition stays above LIMIT, above EXCEPT, above a WITH
query that is materialized, and above windows of which some have other partitions. Where it depends
on PostgreSQL's version or on how an outer join is simplified, a condition on how a key is written
is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, all_of, conjuncts
from millstream.algebra.relation import (
    Aggregate,
    Expand,
    Filter,
    Join,
    Project,
    Relation,
    UnionAll,
    Window,
)
from millstream.compiler.blocks.written_keys import column_type, looks_at_writing
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import Unsupported


def filter_groups_first(relation: Relation, server: PlanningServer) -> Relation:
    """Return a relation whose topmost aggregates read only rows that the filters above them can
    keep.
    """
    return _Pushdown(server).into(relation, _Above())


@dataclass(frozen=True)
class _Above:
    """The conditions above a relation, over its columns: an inner one first, which may guard
    others.
    """

    conditions: tuple[Expr, ...] = ()
    undecided: tuple[Expr, ...] = ()
    """Conditions that PostgreSQL evaluates above or below, depending on more than the query."""
    in_grouping_sets: bool = False
    """All conditions are undecided: only some versions of PostgreSQL filter before they group."""

    def each(self, change: Callable[[Iterable[Expr]], Iterable[Expr]]) -> _Above:
        """Return what a function makes of the conditions, and of those that are undecided."""
        return replace(
            self,
            conditions=tuple(change(self.conditions)),
            undecided=tuple(change(self.undecided)),
        )

    def substitute(self, columns: Mapping[Ref, Expr]) -> _Above:
        """Return the conditions that are over some columns alone, with these replaced."""
        return self.each(lambda found: (c.substitute(columns) for c in _over(columns, found)))

    def below(self, conditions: Iterable[Expr]) -> _Above:
        """Return these conditions with those of a filter below them."""
        return replace(self, conditions=(*conditions, *self.conditions))

    def of_side(self, side: Relation, *own: Expr) -> _Above:
        """Return the conditions over one side of a join alone, and `own` of its ON."""
        columns = set(side.columns)
        return self.below(own).each(lambda found: _over(columns, found))

    def made_undecided(self) -> _Above:
        return replace(self, conditions=(), undecided=(*self.conditions, *self.undecided))


def _over(columns: Iterable[Ref], conditions: Iterable[Expr]) -> list[Expr]:
    """Return the conditions over some columns alone."""
    known = set(columns)
    return [condition for condition in conditions if condition.refs and condition.refs <= known]


Grouped = TypeVar("Grouped", Aggregate, Window)


class _Pushdown:
    """Passes conditions down to the topmost aggregates and windows of a relation."""

    def __init__(self, server: PlanningServer) -> None:
        self.server = server

    def into(self, relation: Relation, above: _Above) -> Relation:
        """Return a relation whose groups are filtered by the conditions above it, and its own."""
        match relation:
            case Filter():
                own = above.below(conjuncts(relation.predicate))
                return replace(relation, input=self.into(relation.input, own))
            case Project():
                return self._into_projection(relation, above)
            case Join():
                return self._into_join(relation, above)
            case UnionAll():
                return self._into_union(relation, above)
            case Expand():
                if _is_except_all(relation):
                    return relation
                carried = _carried(relation)
                return replace(relation, input=self.into(relation.input, above.substitute(carried)))
            case Aggregate():
                return self._into_groups(relation, above)
            case Window():
                return self._into_partitions(relation, above)
        return relation

    def _into_projection(self, project: Project, above: _Above) -> Project:
        if project.materialized:
            above = above.each(lambda found: (c for c in found if not self._looks(project, c)))
        outputs = {Ref(project.alias, output.name): output.expr for output in project.outputs}
        return replace(project, input=self.into(project.input, above.substitute(outputs)))

    def _into_join(self, join: Join, above: _Above) -> Join:
        on = tuple(conjuncts(join.condition)) if join.condition else ()
        if join.kind == "full":
            above, on = above.made_undecided(), ()
        inner = join.kind == "inner"
        left = above.of_side(join.left, *on if inner else ())
        right = (above if inner else above.made_undecided()).of_side(join.right, *on)
        return replace(join, left=self.into(join.left, left), right=self.into(join.right, right))

    def _into_union(self, union: UnionAll, above: _Above) -> UnionAll:
        if union.grouping_sets:
            above = replace(above, in_grouping_sets=True)
        return replace(
            union, parts=tuple(self._into_part(union, part, above) for part in union.parts)
        )

    def _into_part(self, union: UnionAll, part: Relation, above: _Above) -> Relation:
        """Pass on the conditions to one part; PostgreSQL does if the part is not cast."""
        columns = dict(zip(union.columns, part.columns, strict=True))
        types = dict(zip(union.columns, union.types, strict=True))
        own = {
            ref
            for ref, column in columns.items()
            if column_type(part, column, self.server) == types[ref]
        }
        cast = [condition for condition in above.conditions if not condition.refs <= own]
        decided = tuple(condition for condition in above.conditions if condition not in cast)
        here = replace(above, conditions=decided, undecided=(*above.undecided, *cast))
        return self.into(
            part, here.substitute({ref: Expr(column.sql) for ref, column in columns.items()})
        )

    def _into_groups(self, groups: Aggregate, above: _Above) -> Aggregate:
        if _is_except(groups, above):
            above = above.each(lambda found: (c for c in found if not self._looks(groups, c)))
        keys = {Ref(groups.alias, key.name): key.expr for key in groups.keys}
        arguments = (part for measure in groups.measures for part in measure.call.parts())
        return self._filtered(groups, keys, [*keys.values(), *arguments], above)

    def _into_partitions(self, window: Window, above: _Above) -> Window:
        keys = {ref: expr for ref, expr in _carried(window).items() if expr in window.keys}
        shared = _keys_of_all(window)
        above = above.each(
            lambda found: (c for c in found if c.refs <= shared or not self._looks(window, c))
        )
        return self._filtered(window, keys, [call.expr for call in window.calls], above)

    def _filtered(
        self,
        groups: Grouped,
        keys: Mapping[Ref, Expr],
        computed: Sequence[Expr],
        above: _Above,
    ) -> Grouped:
        """Filter the input of groups by the conditions on their keys alone, where it makes a
        difference.
        """
        self._refuse_undecided(groups, keys, above)
        own = [c for c in _over(keys, above.conditions) if not c.has_subquery]
        if not (any(map(_may_raise, computed)) or _input_may_raise(groups.input)):
            own = [condition for condition in own if self._looks(groups, condition)]
        there = (
            set(conjuncts(groups.input.predicate))
            if isinstance(groups.input, Filter)
            else set[Expr]()
        )
        first = [c for c in (one.substitute(keys) for one in own) if c not in there]
        return replace(groups, input=Filter(groups.input, all_of(first))) if first else groups

    def _refuse_undecided(self, groups: Grouped, keys: Mapping[Ref, Expr], above: _Above) -> None:
        undecided = (*above.undecided, *(above.conditions if above.in_grouping_sets else ()))
        for condition in _over(keys, undecided):
            if self._looks(groups, condition):
                raise _refuse(condition, grouping_sets=above.in_grouping_sets)

    def _looks(self, relation: Relation, condition: Expr) -> bool:
        return looks_at_writing(relation, condition, self.server)


def _refuse(condition: Expr, *, grouping_sets: bool) -> Unsupported:
    where = (
        "GROUPING SETS"
        if grouping_sets
        else "the optional side of an outer join, or a cast part of a union"
    )
    return Unsupported.construct(
        f"a condition on how a group key is written, over {where}",
        reason="Equal values of the key may be written differently, as 1.0 and 1.00, and PostgreSQL may evaluate the "
        "condition before or after it groups them.",
        way_round="Filter the rows in the WHERE clause of the query that groups them.",
        node=condition,
    )


def _carried(relation: Window | Expand) -> dict[Ref, Expr]:
    """Return the columns that a relation takes over from its input."""
    pairs = zip(relation.columns, relation.input.columns, strict=False)
    return {ref: Expr(below.sql) for ref, below in pairs}


def _keys_of_all(window: Window) -> set[Ref]:
    """Return the columns that are keys of a window and of all others of its SELECT, which are right
    below it.
    """
    carried = _carried(window)
    keys = {ref for ref, expr in carried.items() if expr in window.keys}
    if not isinstance(window.input, Window):
        return keys
    below = _keys_of_all(window.input)
    return {ref for ref in keys if carried[ref].as_ref in below}


def _is_except(groups: Aggregate, above: _Above) -> bool:
    """True if groups are those of EXCEPT: the rows of the first side without any of the second."""
    second = Expr.parse(f"{Ref(groups.alias, 'm1').sql} = 0")
    return _counts_sides(groups) and second in above.conditions


def _is_except_all(expand: Expand) -> bool:
    """True for the rows of EXCEPT ALL, each left - right times."""
    groups = expand.input
    return _counts_sides(groups) and "LEAST" not in expand.expansion.call.sql


def _counts_sides(relation: Relation) -> bool:
    """True for the groups of a set operation that counts the rows of both sides."""
    if not isinstance(relation, Aggregate) or not isinstance(relation.input, UnionAll):
        return False
    return relation.input.names[-1] == "side" and all(
        isinstance(part, Project) and part.alias.startswith("side") for part in relation.input.parts
    )


def _input_may_raise(relation: Relation) -> bool:
    """True if a projection below, before the next join or groups, may raise an error."""
    if isinstance(relation, Project) and any(
        _may_raise(output.expr) for output in relation.outputs
    ):
        return True
    return isinstance(relation, Filter | Project) and _input_may_raise(relation.input)


def _may_raise(expression: Expr) -> bool:
    """True if evaluating an expression may raise an error: it computes, converts, or calls a
    function.
    """
    return expression.has_subquery or expression.tree.find(*_RAISING) is not None


_RAISING = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Mod,
    exp.Neg,
    exp.Pow,
    exp.Cast,
    exp.Anonymous,
    exp.Substring,
)
