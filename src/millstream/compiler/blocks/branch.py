"""Build a branch: place its expressions, join its items, and add the edges along which demand
travels.

    condition over one table           a filter of that table's reads, unless an outer join above may null-extend it
    over one table and single rows     a temporal filter of its reads (`push_filters.py`)
    equality of two tables' columns    a join, and an edge for demand
    any other                          a filter of the body

Items are joined in the order in which equalities lead from one to the next. Items without an
equality are joined last, by an edge without keys, over which demand reads everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from millstream.algebra.block import Branch, Edge, Input, Match, Pair, Read
from millstream.algebra.expr import (
    Expr,
    Ref,
    all_of,
    alternatives,
    any_of,
    conjuncts,
    equated,
    unwrapped,
)
from millstream.algebra.relation import Filter, JoinKind, Named, Project, Relation, Scan
from millstream.compiler.blocks.flatten import FlatBranch
from millstream.compiler.blocks.push_filters import all_conditions, joinable, push_temporal_filters
from millstream.compiler.blocks.region import BranchNames, OuterJoin, Region
from millstream.compiler.placement.place import Placer, PlacerOptions
from millstream.compiler.placement.placement import Placement, leaf_ref
from millstream.compiler.refusal import collect
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import Unsupported


@dataclass
class _Sorted:
    """The conditions of a region that are not filters of one table's reads: equalities, and the
    residual.
    """

    pairs: list[Pair] = field(default_factory=list)
    rest: list[Expr] = field(default_factory=list)


class BranchPlan:
    """One branch under construction."""

    def __init__(
        self,
        flat: FlatBranch,
        first: int,
        wanted: Sequence[Expr],
        server: PlanningServer,
        *,
        alone: bool = True,
    ) -> None:
        flat, self._moving = push_temporal_filters(flat, wanted, server)
        self.branch_names = BranchNames(flat.region)
        conditions = list(all_conditions(flat.region))
        sides = [side for one in conditions for side in self._sides(one) or ()]
        options = PlacerOptions(first, sharpen=alone, lenient=flat.lenient)
        self.placer = Placer(self.branch_names, [*wanted, *conditions, *sides], server, options)
        self.flat = flat
        self._filters: list[tuple[str, Expr]] = []
        self._edges: list[Edge] = []

    def placeable(self, condition: Expr) -> bool:
        """True if PostgreSQL can evaluate a condition while reading one table, or Spark after the
        join.
        """
        if self._is_filter(condition):
            return True
        return self.is_computable(condition) or self._pair(condition) is not None

    def is_computable(self, expression: Expr) -> bool:
        """True if Spark can compute an expression after the join."""
        return not isinstance(self.placer.place(expression, "carry"), Unsupported)

    def finish(self, outputs: Sequence[tuple[str, Placement]]) -> Branch | Unsupported:
        """Return the branch, or the refusal of a condition; all its outputs must be placed."""
        joined = _Deferred(self).region(self.flat.region)
        if isinstance(joined, Unsupported):
            return joined
        inputs = self.placer.inputs(self._filters, self._moving)
        relation = joined.built({one.name: Read(one) for one in inputs})
        named = tuple(Named(name, placed.expr) for name, placed in outputs)
        sources = tuple((name, _leaf_of(inputs, placed)) for name, placed in outputs)
        optional = [
            alias
            for alias in self.branch_names.scans
            if self.branch_names.null_extending_joins(alias)
        ]
        null_extended = frozenset(self.placer.names[alias] for alias in optional)
        return Branch(
            inputs, tuple(self._edges), Project(relation, named, "b"), sources, null_extended
        )

    def equalities(self) -> list[tuple[Ref, Ref]]:
        """Return the columns of tables that are equal in every row of the branch."""
        found = []
        for condition in self.flat.region.conditions:
            one, other = self._sides(condition) or (None, None)
            if one is not None and other is not None and (a := one.as_ref) and (b := other.as_ref):
                found.append((a, b))
        return found

    # -- conditions ------------------------------------------------------------------------

    def sort(self, conditions: Iterable[Expr], pushable: Iterable[Scan]) -> _Sorted | Unsupported:
        """Sort conditions into filters, equalities and the residual; reads of `pushable` tables may
        be filtered.

        Return the refusal of a condition that is none of these.
        """
        found, open_to = _Sorted(), [scan.alias for scan in pushable]
        for condition in conditions:
            # A condition without columns may filter any of these tables.
            homes = self.branch_names.homes(condition) or set(open_to[:1])
            if self._is_filter(condition) and homes and homes <= set(open_to):
                self._filters.append((next(iter(homes)), self.branch_names.expanded(condition)))
            elif (pair := self._pair(condition)) is not None:
                found.pairs.append(pair)
            else:
                placed = self.placer.place(condition, "carry")
                if isinstance(placed, Unsupported):
                    return placed
                found.rest.append(placed.expr)
                self._filters += [
                    (alias, one) for alias in open_to if (one := self._implied(condition, alias))
                ]
        return found

    def _is_filter(self, condition: Expr) -> bool:
        """True if a condition is over one table and may be evaluated for rows that the join
        discards.
        """
        return self.placer.is_over_one_table(condition) and not (
            condition.has_subquery and len(self.branch_names.scans) > 1
        )

    def _implied(self, condition: Expr, alias: str) -> Expr | None:
        """Return the filter of one table that an OR implies; None if some alternative has no
        condition on the table.
        """
        own = [
            [
                part
                for part in conjuncts(one)
                if self._is_filter(part) and self.branch_names.homes(part) == {alias}
            ]
            for one in alternatives(condition)
        ]
        return (
            self.branch_names.expanded(any_of(all_of(parts) for parts in own))
            if len(own) > 1 and all(own)
            else None
        )

    def _sides(self, condition: Expr) -> tuple[Expr, Expr] | None:
        """Return both sides of an equality of two tables; None for any other condition."""
        sides = equated(condition)
        if sides is None or any(side.has_subquery for side in sides):
            return None
        one, other = sides
        homes = [self.branch_names.homes(side) for side in (one, other)]
        correlated = (
            all(len(home) == 1 and home <= self.branch_names.scans.keys() for home in homes)
            and homes[0] != homes[1]
        )
        return (one, other) if correlated else None

    def _pair(self, condition: Expr) -> Pair | None:
        """Return an equality as leaf columns that Spark can join by; None if it must be a filter."""
        sides = self._sides(condition)
        if sides is None:
            return None
        left, right = (self.placer.types[side] for side in sides)
        if not joinable(left, right):
            return None
        nulls = not isinstance(unwrapped(condition.tree), exp.EQ)
        # A null-extended row has no key to look up: with IS NOT DISTINCT FROM its NULL would match
        # other NULLs.
        fits = self.placer.never_null_extended if nulls else self.placer.null_if_extended
        if not all(fits(side) for side in sides):
            return None
        leaves = collect(self.placer.leaf(side, "key") for side in sides)
        if isinstance(leaves, Unsupported):
            return None
        one, other = map(leaf_ref, leaves)
        assert one is not None, "a side of an equality is a leaf"
        assert other is not None, "a side of an equality is a leaf"
        return Pair(one, other, nulls)

    def edge(
        self,
        left: _Joined,
        right: _Joined,
        pairs: Sequence[Pair],
        kind: JoinKind,
        *,
        needed: bool = False,
    ) -> None:
        """Add an edge between two sets of inputs: the two inputs that share most equalities.

        Without an equality, take two that have a row in each row of their side: reading them in
        full reaches all rows.
        """
        lefts, rights = list(left.names), list(right.names)
        oriented = [pair if pair.one.alias in lefts else pair.swap() for pair in pairs]
        groups = dict[tuple[int, int], list[Pair]]()
        for pair in oriented:
            groups.setdefault(
                (lefts.index(pair.one.alias), rights.index(pair.other.alias)), []
            ).append(pair)
        if not groups:
            self._edges.append(Edge(left.cover[-1], right.cover[0], (), kind))
            return
        best = max(
            (groups[ends] for ends in sorted(groups)),
            key=lambda group: (self.selective(group), len(group)),
        )
        columns = tuple((pair.one.column, pair.other.column) for pair in best)
        nulls = tuple(place for place, pair in enumerate(best) if pair.nulls)
        self._edges.append(
            Edge(best[0].one.alias, best[0].other.alias, columns, kind, nulls, needed)
        )

    def selective(self, pairs: Sequence[Pair]) -> bool:
        """True if equalities cover a unique key of one of their tables: a row then has few matches."""
        named = dict[str, set[str]]()
        for end in (end for pair in pairs for end in (pair.one, pair.other)):
            if (ref := self._column(end)) is not None:
                named.setdefault(ref.alias, set()).add(ref.column)
        scans = {
            alias: self.branch_names.scans[alias]
            for alias in named
            if alias in self.branch_names.scans
        }
        keys = (
            (scan.table.key if not scan.expansions else (), named[alias])
            for alias, scan in scans.items()
        )
        return any(key and set(key) <= columns for key, columns in keys)

    def _column(self, end: Ref) -> Ref | None:
        """Return the column of a table that a leaf is; None if the leaf is computed."""
        alias = next(alias for alias, name in self.placer.names.items() if name == end.alias)
        leaf = next(leaf for leaf in self.placer.leaves[alias].values() if leaf.name == end.column)
        return leaf.expr.as_ref


def _leaf_of(inputs: Sequence[Input], placed: Placement) -> Ref | None:
    """Return the leaf that a placement is; None if Spark computes it, as it does the mark of an
    EXISTS.
    """
    ref = leaf_ref(placed)
    return ref if ref is not None and any(one.name == ref.alias for one in inputs) else None


@dataclass(frozen=True)
class _Joined:
    """A part of the body, to be built when all leaves are known."""

    names: tuple[str, ...]
    cover: tuple[str, ...]
    """The inputs that have a row in each row of this part; for a full join, in each row of their
    own side.
    """
    parts: tuple[_Joined, ...] = ()
    kind: JoinKind = "inner"
    pairs: tuple[Pair, ...] = ()
    rest: tuple[Expr, ...] = ()
    mark: Ref | None = None
    filters: tuple[Expr, ...] = ()

    def built(self, reads: dict[str, Read]) -> Relation:
        relation: Relation
        if not self.parts:
            relation = reads[self.names[0]]
        else:
            left, right = (part.built(reads) for part in self.parts)
            relation = Match(self.kind, left, right, self.pairs, self.rest, self.mark)
        for predicate in self.filters:
            relation = Filter(relation, predicate)
        return relation


class _Deferred:
    """Joins the items of regions, from the inside out."""

    def __init__(self, plan: BranchPlan) -> None:
        self.plan = plan
        self.names = plan.placer.names

    def region(self, region: Region) -> _Joined | Unsupported:
        """Return the join of a region, or the refusal of a condition in it."""
        waiting = collect(self._item(item, region) for item in region.items)
        if isinstance(waiting, Unsupported):
            return waiting
        found = self.plan.sort(region.conditions, region.certain())
        if isinstance(found, Unsupported):
            return found
        joined, pairs = waiting.pop(0), found.pairs
        while waiting:
            joined = self._with_next(joined, waiting, pairs)
        return _Joined(
            joined.names, joined.cover, joined.parts, joined.kind, joined.pairs, joined.rest, joined.mark,
            (*joined.filters, *(pair.condition for pair in pairs), *found.rest),
        )  # fmt: skip

    def _with_next(self, joined: _Joined, waiting: list[_Joined], pairs: list[Pair]) -> _Joined:
        """Join the next item that an equality leads to; without an equality, the next one."""
        correlated = {
            part: [pair for pair in pairs if _connects(pair, joined, part)] for part in waiting
        }
        reached = [part for part in waiting if correlated[part]]
        # Joins by a unique key first: they lead to few rows.
        reached.sort(key=lambda part: not self.plan.selective(correlated[part]))
        new = reached[0] if reached else waiting[0]
        waiting.remove(new)
        ready = [pair for pair in pairs if _connects(pair, joined, new)]
        for pair in ready:
            pairs.remove(pair)
        self.plan.edge(joined, new, ready, "inner")
        names, cover = joined.names + new.names, joined.cover + new.cover
        return _Joined(names, cover, (joined, new), "inner", tuple(ready))

    def _item(self, item: Scan | OuterJoin, region: Region) -> _Joined | Unsupported:
        if isinstance(item, Scan):
            name = self.names[item.alias]
            return _Joined((name,), (name,))
        with self.plan.placer.inside(item):
            sides = collect(map(self.region, (item.left, item.right)))
            if isinstance(sides, Unsupported):
                return sides
            left, right = sides
            pushable = () if item.kind == "full" else item.right.certain()
            found = self.plan.sort(item.on, pushable)
            if isinstance(found, Unsupported):
                return found
            across = [pair for pair in found.pairs if _connects(pair, left, right)]
            within = [pair.condition for pair in found.pairs if not _connects(pair, left, right)]
        asked = {Expr.of(unwrapped(one.tree)).as_ref for one in region.conditions}
        needed = item.mark is not None and item.mark in asked
        self.plan.edge(left, right, across, item.kind, needed=needed)
        names, cover = (
            left.names + right.names,
            left.cover + (right.cover if item.kind == "full" else ()),
        )
        rest = (*within, *found.rest)
        return _Joined(names, cover, (left, right), item.kind, tuple(across), rest, item.mark)


def _connects(pair: Pair, one: _Joined, other: _Joined) -> bool:
    aliases = pair.one.alias, pair.other.alias
    return (aliases[0] in one.names and aliases[1] in other.names) or (
        aliases[1] in one.names and aliases[0] in other.names
    )
