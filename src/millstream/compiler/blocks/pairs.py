"""Join by conditions that only PostgreSQL can evaluate: ranges, LIKE between columns, jsonb.

    orders AS o LEFT JOIN prices AS p ON p.item = o.item AND p.valid @> o.at

    block 0    pairs (o.id, p.id) for which the condition is true, found by PostgreSQL
    result     orders AS o LEFT JOIN (block 0 AS x JOIN prices AS p ON p.id = x.p) ON x.o = o.id

A condition over two tables depends on their rows alone, so it is the same as a table of the pairs
for which it is true, and joining by it is joining with that table. This holds wherever the
condition stands: in WHERE, in the ON of an outer join, in EXISTS. PostgreSQL keeps the table: when
rows change, it joins them to the other table by the condition, with an index if there is one.

A pair names its rows by the unique key of their table. Rows of a table without one are named by
the columns that the condition reads: the same values have the same pairs, and each distinct value
is stored once, as its text where equal values may be written differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from millstream.algebra import text_io
from millstream.algebra.block import BlockColumn, Key, Output, PairsBlock
from millstream.algebra.expr import Expr, Ref, all_of
from millstream.algebra.relation import Scan
from millstream.algebra.table import SourceTable, quoted
from millstream.algebra.types import Column
from millstream.algebra.wire import prints_alike
from millstream.compiler.blocks.branch import BranchPlan
from millstream.compiler.blocks.choices import pairs_by_postgresql
from millstream.compiler.blocks.flatten import FlatBranch
from millstream.compiler.blocks.region import BranchNames, OuterJoin, Region
from millstream.compiler.blocks.stateless_block import UNKNOWN_TYPE
from millstream.compiler.placement.placement import NUMERIC
from millstream.compiler.refusal import collect
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import Unsupported


class PairStore(Protocol):
    """The part of the chain that adds blocks."""

    @property
    def server(self) -> PlanningServer: ...

    def distinct_values(self, scan: Scan, values: Sequence[Expr]) -> Scan | Unsupported:
        """Return a block with each distinct row of these values of a table, as k0, k1, ..."""

    def add_pairs(self, block: PairsBlock) -> Scan:
        """Add a block of pairs, and return a scan of them."""


def join_pairs(flat: FlatBranch, store: PairStore) -> FlatBranch | Unsupported:
    """Return a branch whose conditions Spark can evaluate: the others are joins with stored pairs.

    Return the branch unchanged if Spark can evaluate all of them.
    """
    plan = BranchPlan(flat, 0, [], store.server)
    unplaceable = frozenset(_unplaceable(plan, plan.flat.region))
    if not unplaceable:
        return flat
    region = _PairJoins(BranchNames(flat.region), unplaceable, store).region(flat.region)
    return region if isinstance(region, Unsupported) else replace(flat, region=region)


def _unplaceable(plan: BranchPlan, region: Region) -> Iterator[Expr]:
    """Yield the conditions of a region, at any depth, that Spark cannot evaluate."""
    yield from (one for one in region.conditions if not plan.placeable(one))
    for item in region.items:
        if isinstance(item, OuterJoin):
            with plan.placer.inside(item):
                for side in (item.left, item.right):
                    yield from _unplaceable(plan, side)
                yield from (one for one in item.on if not plan.placeable(one))


@dataclass(frozen=True)
class _Paired:
    """A scan of stored pairs, and the conditions that join it to either table."""

    scan: Scan
    joins: tuple[tuple[Expr, ...], tuple[Expr, ...]]
    by_key: bool
    """Each row has a name that no other row has, and that is not NULL."""


@dataclass(frozen=True)
class _PairSide:
    """One input of a block of pairs: its scan, and the columns that name its rows."""

    scan: Scan
    names: tuple[tuple[Expr, Ref], ...]
    """Each value of the query's table that names a row, with the column of the scan that it is."""
    columns: dict[Ref, Expr]
    """Columns of the query's table that are called otherwise in the scan."""
    by_key: bool


class _PairJoins:
    """Joins the tables of a branch with stored pairs."""

    def __init__(
        self, branch_names: BranchNames, unplaceable: frozenset[Expr], store: PairStore
    ) -> None:
        self.branch_names = branch_names
        self.unplaceable = unplaceable
        self.store = store

    def region(self, region: Region, around: tuple[OuterJoin, ...] = ()) -> Region | Unsupported:
        """Return a region with its conditions by pairs, at any depth."""
        items = list[Scan | OuterJoin]()
        for item in region.items:
            made = item if isinstance(item, Scan) else self._outer(item, around)
            if isinstance(made, Unsupported):
                return made
            items.append(made)
        conditions = list(region.conditions)
        while (found := self._next(conditions)) is not None:
            paired = self._pairs(found, conditions, around)
            if isinstance(paired, Unsupported):
                return paired
            items.append(paired.scan)
            conditions = [*self._rest(found, conditions), *paired.joins[0], *paired.joins[1]]
        return Region(tuple(items), tuple(conditions))

    def _outer(self, outer: OuterJoin, around: tuple[OuterJoin, ...]) -> OuterJoin | Unsupported:
        inside = (*around, outer)
        right_tables = {scan.alias for scan in outer.right.scans()}
        within = [
            one
            for one in outer.on
            if one in self.unplaceable and self.branch_names.homes(one) <= right_tables
        ]
        if within and outer.kind == "full":
            return _refuse(within[0])
        right = replace(outer.right, conditions=(*outer.right.conditions, *within))
        sides = collect(self.region(side, inside) for side in (outer.left, right))
        if isinstance(sides, Unsupported):
            return sides
        made = replace(outer, left=sides[0], right=sides[1])
        return self._on(made, [one for one in outer.on if one not in within], inside)

    def _on(
        self, outer: OuterJoin, on: list[Expr], inside: tuple[OuterJoin, ...]
    ) -> OuterJoin | Unsupported:
        """Return an outer join with the conditions of its ON by pairs."""
        left_tables = {scan.alias for scan in outer.left.scans()}
        left, right = outer.left, outer.right
        while (found := self._next(on)) is not None:
            found = sorted(found, key=lambda alias: alias not in left_tables)
            if len(left_tables & set(found)) != 1:
                return _refuse(self._first(on))
            paired = self._pairs(found, on, inside)
            if isinstance(paired, Unsupported):
                return paired
            pairs, (by_left, by_right) = Region((paired.scan,)), paired.joins
            if outer.kind == "full":
                if not paired.by_key:
                    return _refuse(self._first(on))
                left = Region((OuterJoin("left", left, pairs, by_left),))
                on = [*self._rest(found, on), *by_right]
            else:
                right = Region((*right.items, paired.scan), (*right.conditions, *by_right))
                on = [*self._rest(found, on), *by_left]
        return replace(outer, left=left, right=right, on=tuple(on))

    def _first(self, conditions: Sequence[Expr]) -> Expr:
        return next(one for one in conditions if one in self.unplaceable)

    def _next(self, conditions: Sequence[Expr]) -> list[str] | None:
        """Return the tables of the next condition that asks for pairs; None if none does."""
        found = next((one for one in conditions if one in self.unplaceable), None)
        return None if found is None else sorted(self.branch_names.homes(found))

    def _rest(self, tables: Sequence[str], conditions: Sequence[Expr]) -> list[Expr]:
        """Return the conditions without those that the pairs of two tables satisfy."""
        return [one for one in conditions if self.branch_names.homes(one) != set(tables)]

    def _pairs(
        self, tables: Sequence[str], conditions: Sequence[Expr], around: tuple[OuterJoin, ...]
    ) -> _Paired | Unsupported:
        """Add the block of the pairs of two tables that satisfy the conditions over them."""
        refused = _refuse(self._first(conditions))
        scans = [self.branch_names.scans.get(alias) for alias in tables]
        one, other = scans if len(scans) == 2 else (None, None)
        if one is None or other is None or one.table.single or other.table.single:
            return refused
        if any(self.branch_names.null_extending_joins(alias, around) for alias in tables):
            return refused
        own = [
            self.branch_names.expanded(condition)
            for condition in conditions
            if (homes := self.branch_names.homes(condition))
            and homes <= set(tables)
            and not condition.has_subquery
        ]
        across = [condition for condition in own if len(condition.aliases) > 1]
        if any(one in self.unplaceable and one.has_subquery for one in conditions) or not across:
            return refused
        sides = collect(self._side(scan, own) for scan in (one, other))
        if isinstance(sides, Unsupported):
            return sides
        block = _block(sides, own, self.store.server)
        if isinstance(block, Unsupported):
            return block
        return _paired(self.store.add_pairs(block), sides)

    def _side(self, scan: Scan, conditions: Sequence[Expr]) -> _PairSide | Unsupported:
        """Return how the rows of a table are read, and how a pair names them."""
        if isinstance(scan.table, SourceTable) and scan.table.key and not scan.expansions:
            key = [Ref(scan.alias, column) for column in scan.table.key]
            return _PairSide(scan, tuple((Expr(ref.sql), ref) for ref in key), {}, by_key=True)
        refs = sorted({ref for one in conditions for ref in one.refs if ref.alias in scan.aliases})
        found = collect(self._exact(scan, ref) for ref in refs)
        if isinstance(found, Unsupported):
            return found
        exact = dict(zip(refs, found, strict=True))
        values = self.store.distinct_values(scan, [value for value, _ in found])
        if isinstance(values, Unsupported):
            return values
        names = zip((value for value, _ in found), values.columns, strict=True)
        columns = {
            ref: Expr.parse(back.format(column.sql))
            for (ref, (_, back)), column in zip(exact.items(), values.columns, strict=True)
        }
        return _PairSide(values, tuple(names), columns, by_key=False)

    def _exact(self, scan: Scan, ref: Ref) -> tuple[Expr, str] | Unsupported:
        """Return a column as a value that is equal only where it is the same, and how to get it
        back: 1.0 and 1.00 are equal, and a condition may tell them apart.
        """
        types = self.store.server.types([Expr(ref.sql)], [scan])
        if isinstance(types, Unsupported):
            return types
        type_ = types[0]
        if prints_alike(type_):
            return Expr(ref.sql), "{}"
        if type_.output:
            return _refuse(Expr(ref.sql))
        back = f"({{}})::{type_.name}"
        return Expr.parse(text_io.output_sql(ref.sql, type_)), back


def _block(
    sides: Sequence[_PairSide], conditions: Sequence[Expr], server: PlanningServer
) -> PairsBlock | Unsupported:
    """Return the block of the pairs: conditions over one table are filters of its reads."""
    columns = {ref: expr for side in sides for ref, expr in side.columns.items()}
    own = [condition.substitute(columns) for condition in conditions]
    filters = tuple(condition for condition in own if len(condition.aliases) == 1)
    across = all_of(condition for condition in own if len(condition.aliases) > 1)
    named = [ref for side in sides for _, ref in side.names]
    read = list(dict.fromkeys([*named, *(ref for one in own for ref in sorted(one.refs))]))
    flat = FlatBranch(Region(tuple(side.scan for side in sides), filters), {})
    plan = BranchPlan(flat, 0, [Expr(ref.sql) for ref in read], server)
    leaves = collect(plan.placer.leaf(Expr(ref.sql), "carry") for ref in read)
    if isinstance(leaves, Unsupported):
        return leaves
    body = [(f"x{n}", leaf) for n, leaf in enumerate(leaves[: len(named)])]
    branch = plan.finish(body)
    if isinstance(branch, Unsupported):
        return branch
    outputs = tuple(
        Output(Column(f"c{n}", UNKNOWN_TYPE), f"d.{quoted(name)}")
        for n, (name, _) in enumerate(body)
    )
    block = PairsBlock(
        "pairs", (branch,), tuple(BlockColumn(name, leaf.type or NUMERIC, leaf.wire) for name, leaf in body),
        outputs, Key("row_id"), condition=across,
    )  # fmt: skip
    return block.with_choices([pairs_by_postgresql(across)])


def _paired(scan: Scan, sides: Sequence[_PairSide]) -> _Paired:
    columns = iter(scan.columns)
    joins = [
        tuple(_same(value, next(columns), nulls=not side.by_key) for value, _ in side.names)
        for side in sides
    ]
    return _Paired(scan, (joins[0], joins[1]), all(side.by_key for side in sides))


def _same(one: Expr, other: Ref, *, nulls: bool) -> Expr:
    operator = "IS NOT DISTINCT FROM" if nulls else "="
    return Expr.parse(f"{one.sql} {operator} {other.sql}")


def _refuse(condition: Expr) -> Unsupported:
    return Unsupported.construct(
        f"{condition.sql} over more than two tables, or over a side that may be missing",
        reason="PostgreSQL keeps the pairs of rows that satisfy a condition of two tables.",
        way_round="Write it as conditions of two tables each.",
        node=condition,
    )
