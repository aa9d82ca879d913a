"""A block: the unit that is planned, evaluated and maintained.

    inputs    tables or other blocks, each read as a few leaf columns that PostgreSQL computes while reading
    body      joins of all kinds, filters, projections and unions over the inputs, evaluated by Spark
    head      at most one stateful operator: so far, an aggregate
    outputs   final expressions, computed by PostgreSQL while applying

A query is a chain of blocks, innermost first; the last one's outputs are the stream table. Nothing here reads or
writes: a block is a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import JoinKind, Relation, Scan
from millstream.algebra.temporal_filter import TemporalFilter
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import (
    BEYOND,
    COARSE,
    FINE,
    NAN,
    Wire,
    added_wire_of,
    extreme_wire_of,
    key_wire_of,
    number_wire_of,
    order_wire_of,
    printed_wire_of,
    tried_wire_of,
    untried_wire_of,
    wire_of,
)

Use = Literal[
    "carry", "key", "number", "order", "extreme", "added", "nan", "coarse", "fine", "beyond", "tried", "untried",
    "printed",
]  # fmt: skip

LEVEL = "__ms_level"
"""The column of a recursion by UNION ALL that holds the number of steps to a row."""


@dataclass(frozen=True)
class Leaf:
    """A column that an input delivers: an expression PostgreSQL evaluates while reading."""

    name: str
    expr: Expr
    type: PgType
    use: Use
    wire: Wire

    @property
    def sql(self) -> str:
        """What the leaf query selects."""
        return self.wire.key_sql(self.expr.sql) if self.use == "key" else self.wire.encode_sql(self.expr.sql)

    def __str__(self) -> str:
        return f"{self.name} = {self.expr}" + (f" [{self.use}]" if self.use != "carry" else "")


def wire_for(type_: PgType, use: Use) -> Wire | None:
    """The wire for a use of a type; None where Spark cannot compute with it."""
    if use in _PARTS:
        return _PARTS[use]
    return _WIRES.get(use, wire_of)(type_)


# Of a number that is only added up: the same for all types.
_PARTS: dict[Use, Wire] = {"coarse": COARSE, "fine": FINE, "beyond": BEYOND, "nan": NAN}
_WIRES: dict[Use, Callable[[PgType], Wire | None]] = {
    "number": number_wire_of, "order": order_wire_of, "added": added_wire_of, "extreme": extreme_wire_of,
    "tried": tried_wire_of, "untried": untried_wire_of, "key": key_wire_of, "printed": printed_wire_of,
}  # fmt: skip


@dataclass(frozen=True)
class Input:
    """A table as one branch reads it."""

    name: str
    scan: Scan
    leaves: tuple[Leaf, ...]
    filters: tuple[Expr, ...]
    temporal_filters: tuple[TemporalFilter, ...] = ()

    def used(self) -> set[str]:
        """The columns of the table that it needs."""
        exprs = [*(leaf.expr for leaf in self.leaves), *self.filters, *(one.condition for one in self.temporal_filters)]
        refs = [ref for expr in exprs for ref in expr.refs]
        refs += [ref for one in self.scan.expansions for ref in one.refs()]
        return {ref.column for ref in refs if ref.alias == self.scan.alias}

    def leaf(self, name: str) -> Leaf:
        return next(leaf for leaf in self.leaves if leaf.name == name)

    def __str__(self) -> str:
        where = f" WHERE {' AND '.join(f'({one})' for one in self.filters)}" if self.filters else ""
        columns = ", ".join(map(str, self.leaves))
        made = "".join(f", {one}" for one in self.scan.expansions)
        temporal_filters = (
            f" TEMPORAL FILTER {', '.join(map(str, self.temporal_filters))}" if self.temporal_filters else ""
        )
        return f"{self.name}  {self.of} AS {self.scan.alias}{made}: {columns}{where}{temporal_filters}"

    @property
    def of(self) -> str:
        """What it reads, for people."""
        return self.scan.table.title


@dataclass(frozen=True)
class Read(Relation):
    """The rows of an input, as the body sees them."""

    input: Input

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(Ref(self.input.name, leaf.name) for leaf in self.input.leaves)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()

    def headline(self) -> str:
        return f"Read  {self.input}"


@dataclass(frozen=True)
class Pair:
    """Columns of two inputs that are equal; with `nulls`, two NULLs are equal too."""

    one: Ref
    other: Ref
    nulls: bool = False

    @property
    def condition(self) -> Expr:
        return Expr(f"{self.one.sql} {'IS NOT DISTINCT FROM' if self.nulls else '='} {self.other.sql}")

    def turned(self) -> Pair:
        """The same, written the other way round."""
        return Pair(self.other, self.one, self.nulls)


@dataclass(frozen=True)
class Match(Relation):
    """A join of the body: pairs of equal columns, and what else must be true of a pair."""

    kind: JoinKind
    left: Relation
    right: Relation
    pairs: tuple[Pair, ...]
    rest: tuple[Expr, ...] = ()
    mark: Ref | None = None

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.left.columns + ((self.mark,) if self.mark else self.right.columns)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """All that must be true of a pair."""
        return (*(pair.condition for pair in self.pairs), *self.rest)

    def headline(self) -> str:
        what = "" if self.kind == "inner" else f"{self.kind} " if self.mark is None else f"mark {self.mark} "
        return f"Join  {what}{' AND '.join(map(str, self.conditions)) or '(all pairs)'}"


@dataclass(frozen=True)
class Edge:
    """Two inputs joined by equal leaf columns; without pairs, by anything at all."""

    left: str
    right: str
    pairs: tuple[tuple[str, str], ...] = ()
    kind: JoinKind = "inner"
    nulls: tuple[int, ...] = ()
    """The places of the pairs that two NULLs satisfy too."""
    needed: bool = False
    """Of a mark: where it is not true there is no row."""

    def reduces(self, sender: str) -> bool:
        """Is a row of the sender's in no row of the result unless it meets one of the other end?"""
        if self.kind == "full" or not self.pairs:
            return False
        return self.kind == "inner" or sender == self.right or self.needed

    def complete(self, sender: str) -> bool:
        """Must the other end have all rows that the sender's rows can meet? Where "is there any?" is asked."""
        return self.kind == "full" or (self.kind in ("left", "mark") and sender == self.left)

    def both(self) -> list[tuple[str, tuple[str, ...]]]:
        """Each end with its columns."""
        return [(self.left, tuple(one for one, _ in self.pairs)), (self.right, tuple(other for _, other in self.pairs))]

    def ends(self, name: str) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
        """Seen from `name`: the other end, our columns, its columns. None if it is not an end."""
        left, right = tuple(pair[0] for pair in self.pairs), tuple(pair[1] for pair in self.pairs)
        if name == self.left:
            return self.right, left, right
        if name == self.right:
            return self.left, right, left
        return None

    def __str__(self) -> str:
        how = "" if self.kind == "inner" else f" ({self.kind})"
        if not self.pairs:
            return f"{self.left} x {self.right}{how}"
        signs = ("<=>" if place in self.nulls else "=" for place in range(len(self.pairs)))
        pairs = zip(self.pairs, signs, strict=True)
        return " and ".join(f"{self.left}.{one} {sign} {self.right}.{other}" for (one, other), sign in pairs) + how


@dataclass(frozen=True)
class Branch:
    """One part of the body: inputs joined along a tree of edges, then filtered and projected."""

    inputs: tuple[Input, ...]
    edges: tuple[Edge, ...]
    """A spanning tree: demand travels along it. Further equalities are conditions of the body."""
    body: Relation
    sources: tuple[tuple[str, Ref | None], ...]
    """For each column of the body: the leaf it is, if it is nothing but a leaf."""
    null_extended: frozenset[str] = frozenset()
    """The inputs that have no row in some rows of the body."""

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.inputs) - 1:
            raise ValueError("the edges of a branch are not a spanning tree")

    def input(self, name: str) -> Input:
        return next(one for one in self.inputs if one.name == name)


@dataclass(frozen=True)
class BlockColumn:
    """A column of the body."""

    name: str
    type: PgType
    wire: Wire


Strategy = Literal["sum", "extreme", "recompute"]
Function = Literal["rows", "present", "reaching", "total", "special", "beyond", "min", "max"]


@dataclass(frozen=True)
class Accumulator:
    """One column of a group's state and how it is kept.

    sum        Spark sends the difference, PostgreSQL adds it: exact in numeric
    extreme    a better value replaces it; losing the best one recomputes the group
    recompute  the group is read again whenever it is touched (floating point: no drift)
    """

    name: str
    function: Function
    strategy: Strategy
    column: str | None
    """The body's column it is over; None for `rows`."""
    type: PgType
    """Its type in the state table."""
    wire: Wire | None = None
    order: str | None = None
    """Of an extreme: the body's column Spark orders by; None leaves the choice to PostgreSQL."""
    level: int | None = None
    """Of `reaching`: values from here on are counted. Of an extreme: up to here, its loss is told by such counts. Of
    `special`: which one is counted, by its place among NaN and the infinities."""

    def __str__(self) -> str:
        level = f" from {self.level}" if self.function == "reaching" else ""
        return f"{self.name} = {self.function}({self.column or '*'}{level}) [{self.strategy}]"


@dataclass(frozen=True)
class HolisticAggregate:
    """An aggregate that PostgreSQL computes over all rows of a touched group: its expression over the rows `r`."""

    name: str
    expr: str

    def __str__(self) -> str:
        return f"{self.name} = {self.expr} [holistic]"


@dataclass(frozen=True)
class AggregateHead:
    """The state of each group: its keys and accumulators. Without keys there is one group, always."""

    keys: tuple[BlockColumn, ...]
    accumulators: tuple[Accumulator, ...]
    holistic: tuple[HolisticAggregate, ...] = ()
    row_columns: tuple[BlockColumn, ...] = ()
    """The body's columns that holistic aggregates are computed over."""
    whole: bool = False
    """All rows of a touched group are computed anew: it is a partition of a window."""

    @property
    def consolidated(self) -> bool:
        """Must changes that cancel be taken out before aggregating?"""
        return self.whole or bool(self.holistic) or any(a.strategy != "sum" for a in self.accumulators)

    @property
    def recoverable(self) -> bool:
        """Are there accumulators that may have to be computed anew?"""
        return any(a.strategy != "sum" for a in self.accumulators)

    @property
    def recomputed(self) -> bool:
        """Is every touched group recomputed?"""
        return any(a.strategy == "recompute" for a in self.accumulators)

    @property
    def extremes(self) -> tuple[Accumulator, ...]:
        return tuple(a for a in self.accumulators if a.strategy == "extreme")

    @property
    def state_columns(self) -> tuple[tuple[Accumulator, str], ...]:
        """Each column that Spark returns for the state, after the keys: its accumulator and its name."""
        columns = list[tuple[Accumulator, str]]()
        for accumulator in self.accumulators:
            extreme = accumulator.strategy == "extreme"
            names = [f"{accumulator.name}_in", f"{accumulator.name}_out"] if extreme else [accumulator.name]
            columns += [(accumulator, name) for name in names]
        return tuple(columns)

    def __str__(self) -> str:
        keys = ", ".join(key.name for key in self.keys) or "(everything)"
        return f"Aggregate by {keys}: {', '.join(map(str, (*self.accumulators, *self.holistic)))}"


@dataclass(frozen=True)
class Output:
    """A column of the stream table: PostgreSQL's expression over the block's columns or state."""

    column: Column
    expr: str
    key: str | None = None
    """The key of the groups that it shows, if it is nothing but one."""

    def __str__(self) -> str:
        return f"{self.column.name} {self.column.type} = {self.expr}"


@dataclass(frozen=True)
class Key:
    """What tells the rows of the stream table apart.

    columns   output columns that do; the table has exactly the query's columns
    row_id    nothing does: one extra column, `__ms_row_id`
    single    there is at most one row
    """

    kind: Literal["columns", "row_id", "single"]
    columns: tuple[str, ...] = ()
    nullable: bool = False

    def __post_init__(self) -> None:
        if (self.kind == "columns") != bool(self.columns):
            raise ValueError("a key has columns exactly when its kind says so")

    def __str__(self) -> str:
        return f"key ({', '.join(self.columns)})" if self.columns else self.kind


@dataclass(frozen=True)
class MaterializedRows:
    """Of a block whose rows are stored as they are: how they come about.

    window   PostgreSQL computes `outputs` over all rows `r` of the touched partitions, which are the head's groups
    limit    PostgreSQL reads the first rows of its one input, in order
    bag      Spark sends what the join gains and loses
    set      the rows of a recursion, each once
    levels   the rows of a recursion, with how many steps it took to each
    """

    kind: Literal["window", "limit", "bag", "set", "levels"]
    tail: str = ""
    """Of a limit: ORDER BY and LIMIT."""
    order: tuple[str, ...] = ()
    """Of a limit: what the query orders by."""
    text: str = ""
    """Of a recursion: a query that PostgreSQL tells the columns by."""

    def __str__(self) -> str:
        return f"materialized as {self.kind}{f' {self.tail}' if self.tail else ''}"


@dataclass(frozen=True)
class RecursionTerm:
    """One branch of a recursion, with its own columns and final expressions; its HAVING is a filter over those."""

    block: Block
    itself: str | None
    """The input that reads the recursion; None where it begins."""
    found_by: tuple[tuple[str, str], ...] = ()
    """Columns of the recursion that are columns of the body as they are: by these its rows are found again."""

    def lines(self) -> list[str]:
        """Its printed form."""
        block = self.block
        lines = [f"  {block.name}", block.branches[0].body.tree(2)]
        lines += [f"    edge  {edge}" for edge in block.branches[0].edges]
        lines += [f"    where  {block.having}"] if block.having else []
        return [*lines, *(f"    output  {output}" for output in block.outputs)]


@dataclass(frozen=True)
class Block:
    """The whole plan of a block."""

    name: str
    branches: tuple[Branch, ...]
    columns: tuple[BlockColumn, ...]
    head: AggregateHead | None
    outputs: tuple[Output, ...]
    having: str | None
    key: Key
    position: int = 0
    """Its place in the chain."""
    materialized: MaterializedRows | None = None
    terms: tuple[RecursionTerm, ...] = ()
    """Of a recursion: its branches, each evaluated on its own."""

    def inputs(self) -> Iterator[Input]:
        for branch in self.branches:
            yield from branch.inputs

    @property
    def asks_clock(self) -> bool:
        """True if it reads the clock, or a filter of it does."""
        by = (
            scan for one in self.inputs() for temporal_filters in one.temporal_filters for scan in temporal_filters.by
        )
        return any(scan.table.is_clock for scan in (*by, *(one.scan for one in self.inputs())))

    def __str__(self) -> str:
        lines = [f"Block {self.name}"]
        for term in self.terms:
            lines += term.lines()
        for number, branch in enumerate(self.branches if not self.terms else ()):
            lines += [f"  branch {number}"] if len(self.branches) > 1 else []
            lines += [branch.body.tree(2)]
            lines += [f"    edge  {edge}" for edge in branch.edges]
        lines += [f"  head  {self.head}"] if self.head else []
        lines += [f"  {self.materialized}"] if self.materialized else []
        lines += [f"  having  {self.having}"] if self.having else []
        lines += [f"  output  {output}" for output in self.outputs]
        lines += [f"  {self.key}"]
        return "\n".join(lines)
