"""The chain of blocks under a query: each stateful operator below the top is kept by a block of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from millstream.algebra.block import Block, MaterializedRows
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.query_part import planning
from millstream.algebra.relation import (
    Aggregate,
    Expand,
    Filter,
    Join,
    Limit,
    Named,
    Order,
    Project,
    Recursion,
    Relation,
    Scan,
    UnionAll,
    Window,
)
from millstream.algebra.rename import canonical
from millstream.algebra.table import Table
from millstream.algebra.types import Column
from millstream.compiler.blocks.branch import BranchPlan
from millstream.compiler.blocks.count_distinct import has_distinct, split_distinct_counts
from millstream.compiler.blocks.flatten import FlatBranch, expandable, flatten
from millstream.compiler.blocks.group_block import Peeled, build_group_block, peel
from millstream.compiler.blocks.recursion_block import build_recursion_block, check_free, recursion_shape, without_level
from millstream.compiler.blocks.region import Region
from millstream.compiler.blocks.stateless_block import UNKNOWN_TYPE, build_stateless_block, one_branch
from millstream.compiler.blocks.window_and_limit import limit_block, window_block
from millstream.compiler.placement.decimals.unbounded import (
    is_unbounded_column,
    unbounded_columns,
    unbounded_group_columns,
    unbounded_window_columns,
)
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import BadQuery, Unsupported

Stateful = Aggregate | Window | Limit | Recursion


class Chain:
    """The inner blocks of a query."""

    def __init__(self, server: PlanningServer) -> None:
        self.server = server
        self.blocks: list[Block] = []
        self._tables: dict[Relation, Table] = {}

    def cleared(self, relation: Relation) -> Relation:
        """The same with each stateful operator in it replaced by the block that keeps it."""
        if isinstance(relation, Aggregate):
            return Scan(self._table(self.over_tables(relation)), relation.alias)
        if isinstance(relation, Window):
            return Scan(self._table(replace(relation, input=self.cleared(relation.input))), relation.alias)
        if isinstance(relation, Limit):
            return Scan(self._table(self._over_one_table(relation)), relation.alias)
        if isinstance(relation, Recursion):
            terms = replace(relation, base=self.cleared(relation.base), step=self.cleared(relation.step))
            return Scan(self._table(terms), relation.alias)
        if isinstance(relation, Expand):
            return self._expand(replace(relation, input=self.cleared(relation.input)))
        if isinstance(relation, Filter | Project):
            return replace(relation, input=self.cleared(relation.input))
        if isinstance(relation, Join):
            return self._joined(replace(relation, left=self.cleared(relation.left), right=self.cleared(relation.right)))
        if isinstance(relation, UnionAll):
            return replace(relation, parts=tuple(map(self.cleared, relation.parts)))
        return relation

    def over_tables(self, aggregate: Aggregate) -> Aggregate:
        """The same over tables and blocks alone."""
        plain = replace(aggregate, input=self.cleared(aggregate.input))
        return self._sided(plain) if has_distinct(plain) else plain

    def _sided(self, aggregate: Aggregate) -> Aggregate:
        """count(DISTINCT x) with a block that keeps each x once, where that can be."""
        try:
            with self._undone():
                return (
                    split_distinct_counts(aggregate, lambda once: Scan(self._table(once), once.alias), self.server)
                    or aggregate
                )
        except (Unsupported, BadQuery):  # of a type that cannot be grouped by, or is no type of a column
            return aggregate

    def _over_one_table(self, limit: Limit) -> Limit:
        """The same over one table or block; rows of a join are kept first."""
        below = self.cleared(limit.input)
        if is_one_table(below):
            return replace(limit, input=below)
        rows, over = self._rows(below, below.columns)
        order = tuple(Order(one.expr.substitute(over), one.how) for one in limit.order)
        return replace(limit, input=rows, order=order)

    def _rows(self, relation: Relation, wanted: Sequence[Ref]) -> tuple[Scan, dict[Ref, Expr]]:
        """The rows of a join with these columns, kept as they are, and what the columns are there."""
        check_free(relation)
        columns = [Column(f"c{n}", UNKNOWN_TYPE) for n in range(len(wanted))]
        block = self.placed(relation, wanted, lambda flats: build_stateless_block(wanted, flats, columns, self.server))
        unbounded = unbounded_columns(flatten(relation), wanted)
        table = replace(
            self._declared(replace(block, materialized=MaterializedRows("bag"))),
            unbounded=frozenset(column.name for column, ref in zip(columns, wanted, strict=True) if ref in unbounded),
        )
        rows = Scan(table, f"rows_{len(self.blocks)}")
        return rows, dict(zip(wanted, (Expr(ref.sql) for ref in rows.columns), strict=True))

    def _expand(self, expand: Expand) -> Expand:
        """A function over rows of a join: those rows are kept first."""
        flats = flatten(expand.input)
        if all(expandable(flat, expand.expansion.substitute(flat.outputs)) for flat in flats):
            return expand
        rows, over = self._rows(expand.input, expand.input.columns)
        return replace(expand, input=rows, expansion=expand.expansion.substitute(over))

    def _joined(self, join: Join) -> Join:
        """A union on the side that is asked whether there is anything is kept first."""
        right = self._one_branch(join.right) if join.kind != "inner" else join.right
        left = self._one_branch(join.left) if join.kind == "full" else join.left
        return replace(join, left=left, right=right)

    def _one_branch(self, relation: Relation) -> Relation:
        aliases = {ref.alias for ref in relation.columns}
        if len(flatten(relation)) == 1 or len(aliases) > 1:
            return relation
        rows, over = self._rows(relation, relation.columns)
        return Project(rows, tuple(Named(ref.column, expr) for ref, expr in over.items()), aliases.pop())

    def placed(self, relation: Relation, wanted: Iterable[Ref], make: Callable[[Sequence[FlatBranch]], Block]) -> Block:
        """A block over the branches of a relation, of which these columns are used.

        What Spark cannot evaluate across tables becomes a filter over the rows of the join, which are kept first. Where
        they cannot be, it shall compute with all numbers, and fail for one that has too many digits.
        """
        flats, used = flatten(relation), set(wanted)
        with suppress(Unsupported):
            return make(flats)
        with suppress(Unsupported), self._undone():
            settled = [self._settled(flat, used) for flat in flats]
            if settled != flats:
                return make(settled)
        return make([replace(flat, lenient=True) for flat in flats])

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Blocks that were added on the way to a refusal are nobody's."""
        blocks, tables = len(self.blocks), dict(self._tables)
        try:
            yield
        except (Unsupported, BadQuery):
            del self.blocks[blocks:]
            self._tables = tables
            raise

    def _settled(self, flat: FlatBranch, used: set[Ref]) -> FlatBranch:
        region = flat.region
        plan = BranchPlan(flat, 0, [], self.server)
        odd = tuple(one for one in plan.flat.region.conditions if not plan.placeable(one))
        if not odd:
            return flat
        rest = tuple(one for one in region.conditions if one not in odd)
        # A single row is at hand for the filter too: it need not be kept with each row of the join.
        singles = {one.alias: one for one in region.items if isinstance(one, Scan) and one.table.single}
        if only_singles := len(singles) == len(region.items):
            # Their join is a single row too, and it is that row which is kept.
            singles = {}
        asked = {alias for one in rest for alias in plan.atoms.homes(one)}
        aside = [one for alias, one in singles.items() if alias not in asked]
        items = tuple(one for one in region.items if one not in aside)
        outputs = {ref: expr for ref, expr in flat.outputs.items() if ref in used}
        refs = dict.fromkeys(ref for expr in (*odd, *outputs.values()) for ref in sorted(expr.refs))
        needed = [ref for ref in refs if ref.alias not in singles]
        columns = [Column(f"c{n}", UNKNOWN_TYPE) for n in range(len(needed))]
        block = one_branch(
            FlatBranch(Region(items, rest), flat.outputs), [Expr(ref.sql) for ref in needed], columns, self.server
        )
        if not only_singles and any(not edge.pairs for edge in block.branches[0].edges):
            # All pairs of rows would be kept.
            return flat
        scans = plan.atoms.scans
        unbounded = frozenset(
            column.name for column, ref in zip(columns, needed, strict=True) if is_unbounded_column(scans, ref)
        )
        kept = replace(self._declared(replace(block, materialized=MaterializedRows("bag"))), unbounded=unbounded)
        rows = Scan(kept, f"rows_{len(self.blocks)}")
        over = {ref: Expr(new.sql) for ref, new in zip(needed, rows.columns, strict=True)}
        moved = {ref: expr.substitute(over) for ref, expr in outputs.items()}
        beside = tuple(one for alias, one in singles.items() if any(ref.alias == alias for ref in refs))
        return FlatBranch(Region((rows, *beside), tuple(one.substitute(over) for one in odd)), moved)

    def grouped(self, peeled: Peeled, aggregate: Aggregate, columns: Sequence[Column]) -> Block:
        """An aggregate; where Spark cannot compute its keys, over the rows of its input, kept first."""
        try:
            return self._grouped(peeled, aggregate, columns)
        except Unsupported:
            if is_one_table(aggregate.input):
                raise
            with self._undone():
                rows, over = self._rows(aggregate.input, aggregate.refs())
                return self._grouped(peeled, aggregate.over(rows, over), columns)

    def _grouped(self, peeled: Peeled, aggregate: Aggregate, columns: Sequence[Column]) -> Block:
        return self.placed(
            aggregate.input,
            aggregate.refs(),
            lambda flats: build_group_block(peeled, aggregate, flats, columns, self.server),
        )

    def _windowed(self, window: Window) -> Block:
        """A window, likewise."""
        try:
            return self._over_partitions(window)
        except Unsupported:
            if is_one_table(window.input):
                raise
            with self._undone():
                rows, over = self._rows(window.input, window.input.columns)
                calls = tuple(Named(call.name, call.expr.substitute(over)) for call in window.calls)
                keys = tuple(key.substitute(over) for key in window.keys)
                return self._over_partitions(Window(rows, keys, calls, window.alias))

    def _over_partitions(self, window: Window) -> Block:
        return self.placed(window.input, window.input.columns, lambda flats: window_block(window, flats, self.server))

    def _table(self, stateful: Stateful) -> Table:
        """The rows of a stateful operator as a table, kept by a block."""
        check_free(stateful)
        meaning = canonical(stateful)
        if meaning not in self._tables:
            with planning(stateful.headline):
                self._tables[meaning] = self._kept(stateful)
        return self._tables[meaning]

    def _kept(self, stateful: Stateful) -> Table:
        if isinstance(stateful, Recursion):
            return self._recursive(stateful)
        if isinstance(stateful, Window):
            return replace(self._declared(self._windowed(stateful)), unbounded=unbounded_window_columns(stateful))
        if isinstance(stateful, Limit):
            return self._declared(limit_block(stateful, self.server))
        columns = [Column(ref.column, UNKNOWN_TYPE) for ref in stateful.columns]
        table = self._declared(self.grouped(peel(stateful), stateful, columns))
        return replace(
            table,
            key=tuple(key.name for key in stateful.keys),
            single=not stateful.keys,
            unbounded=unbounded_group_columns(stateful),
        )

    def _recursive(self, recursion: Recursion) -> Table:
        """The server tells what its columns are before its terms are planned: they read it."""
        block = replace(recursion_shape(recursion), position=len(self.blocks))
        block = build_recursion_block(recursion, block, self.server.declare(block), self.server)
        return without_level(self._declared(block))

    def _declared(self, block: Block) -> Table:
        """Add a block to the chain; the server tells what its columns are."""
        position = len(self.blocks)
        block = replace(block, name=f"block {position}", position=position)
        table = self.server.declare(block)
        told = tuple(replace(o, column=column) for column, o in zip(table.columns, block.outputs, strict=True))
        self.blocks.append(replace(block, outputs=told))
        return table


def is_one_table(relation: Relation) -> bool:
    """Is it nothing but the rows of one table or block?"""
    flats = flatten(relation)
    return len(flats) == 1 and len(flats[0].region.items) == 1 and isinstance(flats[0].region.items[0], Scan)
