"""The chain of blocks under a query: each stateful operator below the top gets a block of its own.

    SELECT avg(n) FROM (SELECT region, count(*) AS n FROM orders GROUP BY region) AS q

    block 0    Aggregate by region over orders; its rows are stored
    result     Aggregate of everything over block 0, which is read like a table

Some rows of a join are materialized too, as a block of kind "bag": where PostgreSQL must evaluate over joined rows what
Spark cannot. Two operators with the same meaning share one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from millstream.compiler.blocks.filter_groups import filter_groups_first
from millstream.compiler.blocks.flatten import FlatBranch, find_scan_for, flatten
from millstream.compiler.blocks.group_block import Peeled, build_group_block, peel
from millstream.compiler.blocks.recursion_block import build_recursion_block, check_free, recursion_shape, without_level
from millstream.compiler.blocks.region import BranchNames, Region
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
        """Replace each stateful operator in a relation by a scan of the block that stores its rows."""
        if isinstance(relation, Filter):
            relation = filter_groups_first(relation)
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
            left, right = self.cleared(relation.left), self.cleared(relation.right)
            return self._without_optional_unions(replace(relation, left=left, right=right))
        if isinstance(relation, UnionAll):
            return replace(relation, parts=tuple(map(self.cleared, relation.parts)))
        return relation

    def over_tables(self, aggregate: Aggregate) -> Aggregate:
        """Replace the stateful operators below an aggregate by scans of their blocks."""
        plain = replace(aggregate, input=self.cleared(aggregate.input))
        return self._split_distinct(plain) if has_distinct(plain) else plain

    def _split_distinct(self, aggregate: Aggregate) -> Aggregate:
        """Give count(DISTINCT x) a block that stores each x once, if there can be one."""

        def add_block(distinct: Aggregate) -> Scan:
            return Scan(self._table(distinct), distinct.alias)

        try:
            with self._rollback_on_refusal():
                return split_distinct_counts(aggregate, add_block, self.server) or aggregate
        except (Unsupported, BadQuery):  # x has a type that cannot be grouped by, or that no column can have
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
        """Materialize these columns of a join; return a scan of its rows, and what each column is there."""
        check_free(relation)
        columns = _numbered_columns(len(wanted))

        def make(flats: Sequence[FlatBranch]) -> Block:
            return build_stateless_block(wanted, flats, columns, self.server)

        block = self.build_block(relation, wanted, make)
        unbounded = unbounded_columns(flatten(relation), wanted)
        names = (column.name for column, ref in zip(columns, wanted, strict=True) if ref in unbounded)
        rows = self._add_bag(block, frozenset(names))
        return rows, dict(zip(wanted, _exprs(rows), strict=True))

    def _expand(self, expand: Expand) -> Expand:
        """A function over rows of a join: those rows are kept first."""
        flats = flatten(expand.input)
        if all(find_scan_for(flat, expand.expansion.substitute(flat.outputs)) for flat in flats):
            return expand
        rows, over = self._rows(expand.input, expand.input.columns)
        return replace(expand, input=rows, expansion=expand.expansion.substitute(over))

    def _without_optional_unions(self, join: Join) -> Join:
        """Materialize a union on the optional side of a join: whether a row has a match is asked of all its parts."""
        right = self._one_branch(join.right) if join.kind != "inner" else join.right
        left = self._one_branch(join.left) if join.kind == "full" else join.left
        return replace(join, left=left, right=right)

    def _one_branch(self, relation: Relation) -> Relation:
        """Materialize a relation of several branches, under the alias it had."""
        aliases = {ref.alias for ref in relation.columns}
        if len(flatten(relation)) == 1 or len(aliases) > 1:
            return relation
        rows, over = self._rows(relation, relation.columns)
        return Project(rows, tuple(Named(ref.column, expr) for ref, expr in over.items()), aliases.pop())

    def build_block(
        self, relation: Relation, wanted: Iterable[Ref], make: Callable[[Sequence[FlatBranch]], Block]
    ) -> Block:
        """Build a block over the branches of a relation; `wanted` are the columns of it that the block uses.

        The first of these that Spark can compute exactly:

        1. `make` over the branches as they are
        2. `make` over materialized joins, filtered by the conditions that Spark cannot evaluate
        3. `make` with arithmetic on unbounded numerics; a value with too many digits then fails the refresh
        """
        flats = flatten(relation)
        with suppress(Unsupported):
            return make(flats)
        with suppress(Unsupported), self._rollback_on_refusal():
            used = set(wanted)
            over_materialized = [self._materialize_join(flat, used, united=len(flats) > 1) for flat in flats]
            if over_materialized != flats:
                return make(over_materialized)
        return make([replace(flat, lenient=True) for flat in flats])

    @contextmanager
    def _rollback_on_refusal(self) -> Iterator[None]:
        """Remove the blocks that were added before a refusal: nothing reads them."""
        number_of_blocks = len(self.blocks)
        tables = dict(self._tables)
        try:
            yield
        except (Unsupported, BadQuery):
            del self.blocks[number_of_blocks:]
            self._tables = tables
            raise

    def _materialize_join(self, flat: FlatBranch, used: set[Ref], *, united: bool) -> FlatBranch:
        """Materialize the join of a branch, so that PostgreSQL evaluates over its rows what Spark cannot.

            Region  a, b                              Region  rows_1
              a.id = b.a                        ->      similarity(rows_1.c0, rows_1.c1) > 0.5
              similarity(a.x, b.y) > 0.5              block 0  a, b:  a.id = b.a

        Return the branch unchanged if Spark can evaluate all its conditions, and all columns of a union, or if the join
        without those it cannot would be a cross product.
        """
        outputs = {ref: expr for ref, expr in flat.outputs.items() if ref in used}
        columns_of_union = list(outputs.values()) if united else []
        plan = BranchPlan(flat, 0, columns_of_union, self.server)
        unplaceable = tuple(condition for condition in plan.flat.region.conditions if not plan.placeable(condition))
        if not unplaceable and all(map(plan.is_computable, columns_of_union)):
            return flat
        refs = _refs_in_order([*unplaceable, *outputs.values()])
        beside = _single_row_scans(flat.region)
        stored = [ref for ref in refs if ref.alias not in beside]
        columns = _numbered_columns(len(stored))
        joined = _without_conditions(flat.region, unplaceable, beside, plan.atoms)
        block = one_branch(FlatBranch(joined, flat.outputs), [Expr(ref.sql) for ref in stored], columns, self.server)
        if _is_cross_product(block) and not _only_single_rows(flat.region):
            return flat
        unbounded = (
            column.name
            for column, ref in zip(columns, stored, strict=True)
            if is_unbounded_column(plan.atoms.scans, ref)
        )
        rows = self._add_bag(block, frozenset(unbounded))
        over_rows = dict(zip(stored, _exprs(rows), strict=True))
        rejoined = tuple(scan for alias, scan in beside.items() if any(ref.alias == alias for ref in refs))
        region = Region((rows, *rejoined), tuple(condition.substitute(over_rows) for condition in unplaceable))
        return FlatBranch(region, {ref: expr.substitute(over_rows) for ref, expr in outputs.items()})

    def _add_bag(self, block: Block, unbounded: frozenset[str]) -> Scan:
        """Add a block whose rows are materialized as they are, and return a scan of them."""
        table = self._declared(replace(block, materialized=MaterializedRows("bag")))
        return Scan(replace(table, unbounded=unbounded), f"rows_{len(self.blocks)}")

    def build_group_block(self, peeled: Peeled, aggregate: Aggregate, columns: Sequence[Column]) -> Block:
        """Build the block of an aggregate; over the materialized rows of its input if Spark cannot compute its keys."""
        try:
            return self._group_block(peeled, aggregate, columns)
        except Unsupported:
            if is_one_table(aggregate.input):
                raise
            with self._rollback_on_refusal():
                rows, over = self._rows(aggregate.input, aggregate.refs())
                return self._group_block(peeled, aggregate.over(rows, over), columns)

    def _group_block(self, peeled: Peeled, aggregate: Aggregate, columns: Sequence[Column]) -> Block:
        def make(flats: Sequence[FlatBranch]) -> Block:
            return build_group_block(peeled, aggregate, flats, columns, self.server)

        return self.build_block(aggregate.input, aggregate.refs(), make)

    def _build_window_block(self, window: Window) -> Block:
        """Build the block of a window; over the materialized rows of its input if Spark cannot compute its keys."""
        try:
            return self._window_block(window)
        except Unsupported:
            if is_one_table(window.input):
                raise
            with self._rollback_on_refusal():
                rows, over = self._rows(window.input, window.input.columns)
                calls = tuple(Named(call.name, call.expr.substitute(over)) for call in window.calls)
                keys = tuple(key.substitute(over) for key in window.keys)
                return self._window_block(Window(rows, keys, calls, window.alias))

    def _window_block(self, window: Window) -> Block:
        def make(flats: Sequence[FlatBranch]) -> Block:
            return window_block(window, flats, self.server)

        return self.build_block(window.input, window.input.columns, make)

    def _table(self, stateful: Stateful) -> Table:
        """Return the rows of a stateful operator as a table; equal operators share the block that stores them."""
        check_free(stateful)
        meaning = canonical(stateful)
        if meaning not in self._tables:
            with planning(stateful.headline):
                self._tables[meaning] = self._add_stateful(stateful)
        return self._tables[meaning]

    def _add_stateful(self, stateful: Stateful) -> Table:
        """Add the block of a stateful operator, and return its rows as a table."""
        if isinstance(stateful, Recursion):
            return self._add_recursion(stateful)
        if isinstance(stateful, Window):
            return replace(
                self._declared(self._build_window_block(stateful)), unbounded=unbounded_window_columns(stateful)
            )
        if isinstance(stateful, Limit):
            return self._declared(limit_block(stateful, self.server))
        columns = [Column(ref.column, UNKNOWN_TYPE) for ref in stateful.columns]
        table = self._declared(self.build_group_block(peel(stateful), stateful, columns))
        return replace(
            table,
            key=tuple(key.name for key in stateful.keys),
            single=not stateful.keys,
            unbounded=unbounded_group_columns(stateful),
        )

    def _add_recursion(self, recursion: Recursion) -> Table:
        """Add the block of a recursion. Its terms read its columns, so the server describes these first."""
        shape = replace(recursion_shape(recursion), position=len(self.blocks))
        block = build_recursion_block(recursion, shape, self.server.declare(shape), self.server)
        return without_level(self._declared(block))

    def _declared(self, block: Block) -> Table:
        """Add a block to the chain; the server describes its columns."""
        position = len(self.blocks)
        block = replace(block, name=f"block {position}", position=position)
        table = self.server.declare(block)
        pairs = zip(table.columns, block.outputs, strict=True)
        outputs = tuple(replace(output, column=column) for column, output in pairs)
        self.blocks.append(replace(block, outputs=outputs))
        return table


def is_one_table(relation: Relation) -> bool:
    """True if a relation has the rows of one table or block, without a join."""
    flats = flatten(relation)
    return len(flats) == 1 and len(flats[0].region.items) == 1 and isinstance(flats[0].region.items[0], Scan)


def _numbered_columns(number: int) -> list[Column]:
    """Return columns c0, c1, ... of types that the server has yet to tell."""
    return [Column(f"c{position}", UNKNOWN_TYPE) for position in range(number)]


def _refs_in_order(expressions: Iterable[Expr]) -> list[Ref]:
    """Return each column of some expressions once, in an order that does not depend on hashing."""
    return list(dict.fromkeys(ref for expression in expressions for ref in sorted(expression.refs)))


def _only_single_rows(region: Region) -> bool:
    """True if each item of a region is a table of one row: their join is one row too."""
    return all(isinstance(item, Scan) and item.table.single for item in region.items)


def _single_row_scans(region: Region) -> dict[str, Scan]:
    """Return the tables of one row, by alias: they need not be stored with each row of a materialized join.

    Where there is nothing else to join, their one row is what is materialized.
    """
    if _only_single_rows(region):
        return {}
    return {item.alias: item for item in region.items if isinstance(item, Scan) and item.table.single}


def _without_conditions(
    region: Region, unplaceable: Sequence[Expr], beside: Mapping[str, Scan], atoms: BranchNames
) -> Region:
    """Return a region without some conditions, and without single rows that no other condition looks at."""
    conditions = tuple(condition for condition in region.conditions if condition not in unplaceable)
    joined = {alias for condition in conditions for alias in atoms.homes(condition)}
    left_out = [scan for alias, scan in beside.items() if alias not in joined]
    return Region(tuple(item for item in region.items if item not in left_out), conditions)


def _is_cross_product(block: Block) -> bool:
    """True if some inputs of a block's one branch are joined by no equality."""
    return any(not edge.pairs for edge in block.branches[0].edges)


def _exprs(rows: Scan) -> list[Expr]:
    """Return the columns of a scan as expressions."""
    return [Expr(ref.sql) for ref in rows.columns]
