"""The chain of blocks under a query: each stateful operator below the top gets a block of its own.

    SELECT avg(n) FROM (SELECT region, count(*) AS n FROM orders GROUP BY region) AS q

    block 0    Aggregate by region over orders; its rows are stored
    result     Aggregate of everything over block 0, which is read like a table

Some rows of a join are materialized too, as a block of kind "bag": where PostgreSQL must evaluate
over joined rows what Spark cannot. Two operators with the same meaning share one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from millstream.algebra.block import (
    AggregateBlock,
    BagBlock,
    Block,
    PairsBlock,
    StatelessBlock,
    WindowBlock,
)
from millstream.algebra.choice import Choice
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
from millstream.algebra.table import BlockRows
from millstream.algebra.types import Column
from millstream.compiler.blocks.branch import BranchPlan
from millstream.compiler.blocks.choices import (
    DISTINCT_VALUES,
    FIRST_ROWS,
    FUNCTION_OF_A_JOIN,
    GROUPS,
    LIMIT_OF_A_JOIN,
    OPTIONAL_UNION,
    RECURSION,
    VALUES_OF_PAIRS,
    WINDOW,
    distinct_values_recomputed,
    evaluated_by_postgresql,
    keys_by_postgresql,
    lenient_arithmetic,
)
from millstream.compiler.blocks.count_distinct import has_distinct, split_distinct_counts
from millstream.compiler.blocks.filter_groups import filter_groups_first
from millstream.compiler.blocks.flatten import FlatBranch, find_scan_for, flatten
from millstream.compiler.blocks.group_block import Peeled, build_group_block, peel
from millstream.compiler.blocks.pairs import join_pairs
from millstream.compiler.blocks.recursion_block import (
    build_recursion_block,
    open_recursion,
    recursion_shape,
    without_level,
)
from millstream.compiler.blocks.region import BranchNames, Region
from millstream.compiler.blocks.stateless_block import (
    UNKNOWN_TYPE,
    build_stateless_block,
    one_branch,
)
from millstream.compiler.blocks.window_and_limit import limit_block, window_block
from millstream.compiler.placement.decimals.unbounded import (
    is_unbounded_column,
    unbounded_columns,
    unbounded_group_columns,
    unbounded_window_columns,
)
from millstream.compiler.refusal import accepted, collect
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import Unsupported

Stateful = Aggregate | Window | Limit | Recursion
Built = TypeVar("Built", bound=Block)
Make = Callable[[Sequence[FlatBranch]], Built | Unsupported]
"""Builds a block over these branches, or returns its refusal."""
Rows = tuple[Scan, dict[Ref, Expr]]
"""A scan of materialized rows, and what each column of the relation is there."""


class Chain:
    """The inner blocks of a query."""

    def __init__(self, server: PlanningServer) -> None:
        self.server = server
        self.blocks: list[Block] = []
        self._tables: dict[Relation, BlockRows] = {}
        self._not_split: dict[Aggregate, Unsupported] = {}

    def cleared(self, relation: Relation) -> Relation:
        """Replace each stateful operator in a relation by a scan of the block that stores its rows."""
        return self._cleared(filter_groups_first(relation, self.server))

    def _cleared(self, relation: Relation) -> Relation:
        """Clear a relation whose conditions on keys are evaluated where PostgreSQL does."""
        match relation:
            case Aggregate():
                return self._scan(self.over_tables(relation))
            case Window():
                return self._scan(replace(relation, input=self.cleared(relation.input)))
            case Limit():
                return self._scan(self._over_one_table(relation))
            case Recursion():
                terms = replace(
                    relation, base=self.cleared(relation.base), step=self.cleared(relation.step)
                )
                return self._scan(terms)
            case Expand():
                return self._expand(replace(relation, input=self._cleared(relation.input)))
            case Filter() | Project():
                return replace(relation, input=self._cleared(relation.input))
            case Join():
                left, right = self._cleared(relation.left), self._cleared(relation.right)
                return self._without_optional_unions(replace(relation, left=left, right=right))
            case UnionAll():
                return replace(relation, parts=tuple(map(self._cleared, relation.parts)))
        return relation

    def _scan(self, stateful: Stateful) -> Scan:
        """Return a scan of the rows of a stateful operator; raise its refusal."""
        return Scan(accepted(self.table(stateful)), stateful.alias)

    def over_tables(self, aggregate: Aggregate) -> Aggregate:
        """Replace the stateful operators below an aggregate by scans of their blocks."""
        plain = replace(aggregate, input=self.cleared(aggregate.input))
        return self._with_distinct_values(plain) if has_distinct(plain) else plain

    def _with_distinct_values(self, aggregate: Aggregate) -> Aggregate:
        """Give count(DISTINCT x) a block that stores each x once, if there can be one."""
        draft = self._draft()

        def add_block(distinct: Aggregate) -> Scan | Unsupported:
            table = draft.table(distinct, DISTINCT_VALUES)
            return table if isinstance(table, Unsupported) else Scan(table, distinct.alias)

        split = split_distinct_counts(aggregate, add_block, self.server)
        if isinstance(split, Unsupported):
            self._not_split[aggregate] = split
            return aggregate
        self._adopt(draft)
        return split

    def _over_one_table(self, limit: Limit) -> Limit:
        """Return the same over one table or block; the rows of a join are materialized first."""
        below = self.cleared(limit.input)
        if is_one_table(below):
            return replace(limit, input=below)
        rows, over = accepted(self._rows(below, below.columns, LIMIT_OF_A_JOIN))
        order = tuple(Order(one.expr.substitute(over), one.how) for one in limit.order)
        return replace(limit, input=rows, order=order)

    def _rows(
        self, relation: Relation, wanted: Sequence[Ref], choice: Choice
    ) -> Rows | Unsupported:
        """Materialize these columns of a join; return a scan of its rows, and what each column is
        there.
        """
        if refusal := open_recursion(relation):
            return refusal
        columns = _numbered_columns(len(wanted))

        def make(flats: Sequence[FlatBranch]) -> StatelessBlock | Unsupported:
            return build_stateless_block(wanted, flats, columns, self.server)

        block = self.build_block(relation, wanted, make)
        if isinstance(block, Unsupported):
            return block
        unbounded = unbounded_columns(flatten(relation), wanted)
        names = (
            column.name for column, ref in zip(columns, wanted, strict=True) if ref in unbounded
        )
        rows = self._add_bag(block.with_choices([choice]), frozenset(names))
        return rows, dict(zip(wanted, _exprs(rows), strict=True))

    def _expand(self, expand: Expand) -> Expand:
        """Call a function for the rows of a join, which are materialized first."""
        flats = flatten(expand.input)
        if all(find_scan_for(flat, expand.expansion.substitute(flat.outputs)) for flat in flats):
            return expand
        rows, over = accepted(self._rows(expand.input, expand.input.columns, FUNCTION_OF_A_JOIN))
        return replace(expand, input=rows, expansion=expand.expansion.substitute(over))

    def _without_optional_unions(self, join: Join) -> Join:
        """Materialize a union on the optional side of a join: whether a row has a match is asked of
        all its parts.
        """
        right = self._one_branch(join.right) if join.kind != "inner" else join.right
        left = self._one_branch(join.left) if join.kind == "full" else join.left
        return replace(join, left=left, right=right)

    def _one_branch(self, relation: Relation) -> Relation:
        """Materialize a relation of several branches, under the alias it had."""
        aliases = {ref.alias for ref in relation.columns}
        if len(flatten(relation)) == 1 or len(aliases) > 1:
            return relation
        rows, over = accepted(self._rows(relation, relation.columns, OPTIONAL_UNION))
        return Project(
            rows, tuple(Named(ref.column, expr) for ref, expr in over.items()), aliases.pop()
        )

    def build_block(
        self, relation: Relation, wanted: Iterable[Ref], make: Make[Built]
    ) -> Built | Unsupported:
        """Build a block over the branches of a relation; `wanted` are the columns of it that the
        block uses.

        The first of these that Spark can compute exactly:

        1. `make` over the branches as they are
        2. `make` over materialized joins, filtered by the conditions that Spark cannot evaluate
        3. `make` with arithmetic on unbounded numerics; a value with too many digits then fails the refresh
        4. `make` over joins with the pairs that satisfy these conditions, which PostgreSQL finds

        Return the refusal of the last if it can compute none of them.
        """
        flats = flatten(relation)
        as_they_are = make(flats)
        if not isinstance(as_they_are, Unsupported):
            return as_they_are
        draft = self._draft()
        over_rows = draft._over_materialized_joins(flats, set(wanted), make)
        if over_rows is not None:
            self._adopt(draft)
            return over_rows
        lenient = make([replace(flat, lenient=True) for flat in flats])
        if not isinstance(lenient, Unsupported):
            return lenient.with_choices([lenient_arithmetic(as_they_are)])
        draft = self._draft()
        over_pairs = draft._over_pairs(flats, set(wanted), make)
        if over_pairs is None:
            return lenient
        self._adopt(draft)
        return over_pairs

    def _over_materialized_joins(
        self, flats: Sequence[FlatBranch], used: set[Ref], make: Make[Built]
    ) -> Built | None:
        """Build a block over the materialized joins of its branches; None if it is refused, or no
        other.
        """
        over_rows = collect(
            self._materialize_join(flat, used, united=len(flats) > 1) for flat in flats
        )
        if isinstance(over_rows, Unsupported) or over_rows == flats:
            return None
        block = make(over_rows)
        return None if isinstance(block, Unsupported) else block

    def _over_pairs(
        self, flats: Sequence[FlatBranch], used: set[Ref], make: Make[Built]
    ) -> Built | None:
        """Build a block over its branches, joined with stored pairs; None if it is refused, or no
        condition asks for pairs.
        """
        over_pairs = collect(join_pairs(flat, self) for flat in flats)
        if isinstance(over_pairs, Unsupported) or over_pairs == flats:
            return None
        block = make(over_pairs)
        if isinstance(block, Unsupported):
            return self._over_materialized_joins(over_pairs, used, make)
        return block

    def distinct_values(self, scan: Scan, values: Sequence[Expr]) -> Scan | Unsupported:
        """Return a block with each distinct row of these values of a table, as k0, k1, ..."""
        keys = tuple(Named(f"k{n}", value) for n, value in enumerate(values))
        table = self.table(Aggregate(scan, keys, (), f"values_{scan.alias}"), VALUES_OF_PAIRS)
        return table if isinstance(table, Unsupported) else Scan(table, scan.alias)

    def add_pairs(self, block: PairsBlock) -> Scan:
        """Add a block of pairs, and return a scan of them."""
        table = self._declared(block)
        key = tuple(column.name for column in table.columns)
        return Scan(replace(table, key=key), f"pairs_{len(self.blocks)}")

    def _draft(self) -> Chain:
        """Return a copy of the chain: blocks that are added to it are in the chain only if it is
        adopted.
        """
        draft = Chain(self.server)
        draft.blocks, draft._tables, draft._not_split = (
            [*self.blocks],
            {**self._tables},
            {**self._not_split},
        )
        return draft

    def _adopt(self, draft: Chain) -> None:
        """Take over the blocks of a draft."""
        self.blocks, self._tables, self._not_split = draft.blocks, draft._tables, draft._not_split

    def _materialize_join(
        self, flat: FlatBranch, used: set[Ref], *, united: bool
    ) -> FlatBranch | Unsupported:
        """Materialize the join of a branch, so that PostgreSQL evaluates over its rows what Spark
        cannot.

            Region  a, b                              Region  rows_1
              a.id = b.a                        ->      similarity(rows_1.c0, rows_1.c1) > 0.5
              similarity(a.x, b.y) > 0.5              block 0  a, b:  a.id = b.a

        Return the branch unchanged if Spark can evaluate all its conditions, and all columns of a
        union, or if the join without those it cannot would be a cross product.
        """
        outputs = {ref: expr for ref, expr in flat.outputs.items() if ref in used}
        columns_of_union = list(outputs.values()) if united else []
        plan = BranchPlan(flat, 0, columns_of_union, self.server)
        unplaceable = tuple(
            condition for condition in plan.flat.region.conditions if not plan.placeable(condition)
        )
        not_computable = [expr for expr in columns_of_union if not plan.is_computable(expr)]
        if not unplaceable and not not_computable:
            return flat
        refs = _refs_in_order([*unplaceable, *outputs.values()])
        beside = _single_row_scans(flat.region)
        stored = [ref for ref in refs if ref.alias not in beside]
        columns = _numbered_columns(len(stored))
        joined = _without_conditions(flat.region, unplaceable, beside, plan.branch_names)
        block = one_branch(
            FlatBranch(joined, flat.outputs),
            [Expr(ref.sql) for ref in stored],
            columns,
            self.server,
        )
        if isinstance(block, Unsupported):
            return block
        if _is_cross_product(block) and not _multiplies_by_constants(flat.region):
            return flat
        unbounded = (
            column.name
            for column, ref in zip(columns, stored, strict=True)
            if is_unbounded_column(plan.branch_names.scans, ref)
        )
        choice = evaluated_by_postgresql([*unplaceable, *not_computable])
        rows = self._add_bag(block.with_choices([choice]), frozenset(unbounded))
        over_rows = dict(zip(stored, _exprs(rows), strict=True))
        rejoined = tuple(
            scan for alias, scan in beside.items() if any(ref.alias == alias for ref in refs)
        )
        region = Region(
            (rows, *rejoined), tuple(condition.substitute(over_rows) for condition in unplaceable)
        )
        return FlatBranch(
            region, {ref: expr.substitute(over_rows) for ref, expr in outputs.items()}
        )

    def _add_bag(self, block: StatelessBlock, unbounded: frozenset[str]) -> Scan:
        """Add a block whose rows are materialized as they are, and return a scan of them."""
        table = self._declared(BagBlock.of(block))
        return Scan(replace(table, unbounded=unbounded), f"rows_{len(self.blocks)}")

    def build_group_block(
        self, peeled: Peeled, aggregate: Aggregate, columns: Sequence[Column]
    ) -> AggregateBlock | Unsupported:
        """Build the block of an aggregate; over the materialized rows of its input if Spark cannot
        compute its keys.
        """
        block = self._group_block(peeled, aggregate, columns)
        if isinstance(block, Block) or is_one_table(aggregate.input):
            return block if isinstance(block, Unsupported) else self._with_reason(aggregate, block)
        draft = self._draft()
        rows = draft._rows(aggregate.input, aggregate.refs(), keys_by_postgresql(block))
        if isinstance(rows, Unsupported):
            return rows
        over_rows = draft._group_block(peeled, aggregate.over(*rows), columns)
        if isinstance(over_rows, Unsupported):
            return over_rows
        self._adopt(draft)
        return self._with_reason(aggregate, over_rows)

    def _with_reason(self, aggregate: Aggregate, block: AggregateBlock) -> AggregateBlock:
        """Add why count(DISTINCT x) of the aggregate has no block of its own, if one was tried."""
        refusal = self._not_split.get(aggregate)
        return block.with_choices([distinct_values_recomputed(refusal)]) if refusal else block

    def _group_block(
        self, peeled: Peeled, aggregate: Aggregate, columns: Sequence[Column]
    ) -> AggregateBlock | Unsupported:
        def make(flats: Sequence[FlatBranch]) -> AggregateBlock | Unsupported:
            return build_group_block(peeled, aggregate, flats, columns, self.server)

        return self.build_block(aggregate.input, aggregate.refs(), make)

    def _build_window_block(self, window: Window) -> WindowBlock | Unsupported:
        """Build the block of a window; over the materialized rows of its input if Spark cannot
        compute its keys.
        """
        block = self._window_block(window)
        if isinstance(block, Block) or is_one_table(window.input):
            return block
        draft = self._draft()
        rows = draft._rows(window.input, window.input.columns, keys_by_postgresql(block))
        if isinstance(rows, Unsupported):
            return rows
        over_rows = draft._window_block(window.over(*rows))
        if isinstance(over_rows, Block):
            self._adopt(draft)
        return over_rows

    def _window_block(self, window: Window) -> WindowBlock | Unsupported:
        def make(flats: Sequence[FlatBranch]) -> WindowBlock | Unsupported:
            return window_block(window, flats, self.server)

        return self.build_block(window.input, window.input.columns, make)

    def table(self, stateful: Stateful, choice: Choice = GROUPS) -> BlockRows | Unsupported:
        """Return the rows of a stateful operator as a table; equal operators share the block that
        stores them.

        `choice` tells why an aggregate has a block of its own.
        """
        if refusal := open_recursion(stateful):
            return refusal
        meaning = canonical(stateful)
        if meaning not in self._tables:
            with planning(stateful.headline):
                table = self._add_stateful(stateful, choice)
            if isinstance(table, Unsupported):
                return table
            self._tables[meaning] = table
        return self._tables[meaning]

    def _add_stateful(self, stateful: Stateful, choice: Choice) -> BlockRows | Unsupported:
        """Add the block of a stateful operator, and return its rows as a table."""
        match stateful:
            case Recursion():
                return self._add_recursion(stateful)
            case Window():
                return self._add_window(stateful)
            case Limit():
                block = limit_block(stateful, self.server)
                return (
                    block
                    if isinstance(block, Unsupported)
                    else self._declared(block.with_choices([FIRST_ROWS]))
                )
            case Aggregate():
                return self._add_groups(stateful, choice)

    def _add_window(self, window: Window) -> BlockRows | Unsupported:
        block = self._build_window_block(window)
        if isinstance(block, Unsupported):
            return block
        table = self._declared(block.with_choices([WINDOW]))
        return replace(table, unbounded=unbounded_window_columns(window))

    def _add_groups(self, aggregate: Aggregate, choice: Choice) -> BlockRows | Unsupported:
        columns = [Column(ref.column, UNKNOWN_TYPE) for ref in aggregate.columns]
        block = self.build_group_block(peel(aggregate), aggregate, columns)
        if isinstance(block, Unsupported):
            return block
        return replace(
            self._declared(block.with_choices([choice])),
            key=tuple(key.name for key in aggregate.keys),
            single=not aggregate.keys,
            unbounded=unbounded_group_columns(aggregate),
        )

    def _add_recursion(self, recursion: Recursion) -> BlockRows:
        """Add the block of a recursion.

        Its terms read its columns, so the server describes these first.
        """
        shape = replace(recursion_shape(recursion), position=len(self.blocks))
        block = build_recursion_block(recursion, shape, self.server.declare(shape), self.server)
        return without_level(self._declared(block.with_choices([RECURSION])))

    def _declared(self, block: Block) -> BlockRows:
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
    return (
        len(flats) == 1
        and len(flats[0].region.items) == 1
        and isinstance(flats[0].region.items[0], Scan)
    )


def _numbered_columns(number: int) -> list[Column]:
    """Return columns c0, c1, ... of types that the server has yet to tell."""
    return [Column(f"c{position}", UNKNOWN_TYPE) for position in range(number)]


def _refs_in_order(expressions: Iterable[Expr]) -> list[Ref]:
    """Return each column of some expressions once, in an order that does not depend on hashing."""
    return list(dict.fromkeys(ref for expression in expressions for ref in sorted(expression.refs)))


def _only_single_rows(region: Region) -> bool:
    """True if each item of a region is a table of one row: their join is one row too."""
    return all(isinstance(item, Scan) and item.single_row for item in region.items)


def _multiplies_by_constants(region: Region) -> bool:
    """Return True if all items but one are rows that the query's text determines, as those of
    generate_series(1, 31) are.
    """
    tables = [item for item in region.items if not (isinstance(item, Scan) and item.table.single)]
    return len(tables) <= 1


def _single_row_scans(region: Region) -> dict[str, Scan]:
    """Return the tables of one row, by alias: they need not be stored with each row of a
    materialized join.

    Where there is nothing else to join, their one row is what is materialized.
    """
    if _only_single_rows(region):
        return {}
    return {item.alias: item for item in region.items if isinstance(item, Scan) and item.single_row}


def _without_conditions(
    region: Region,
    unplaceable: Sequence[Expr],
    beside: Mapping[str, Scan],
    branch_names: BranchNames,
) -> Region:
    """Return a region without some conditions, and without single rows that no other condition
    looks at.
    """
    conditions = tuple(condition for condition in region.conditions if condition not in unplaceable)
    joined = {alias for condition in conditions for alias in branch_names.homes(condition)}
    left_out = [scan for alias, scan in beside.items() if alias not in joined]
    return Region(tuple(item for item in region.items if item not in left_out), conditions)


def _is_cross_product(block: Block) -> bool:
    """True if some inputs of a block's one branch are joined by no equality."""
    return any(not edge.pairs for edge in block.branches[0].edges)


def _exprs(rows: Scan) -> list[Expr]:
    """Return the columns of a scan as expressions."""
    return [Expr(ref.sql) for ref in rows.columns]
