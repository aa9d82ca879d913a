"""A block: the unit that is planned, evaluated and maintained.

    inputs    tables or other blocks, each read as a few leaf columns that PostgreSQL computes while reading
    body      joins of all kinds, filters, projections and unions over the inputs, evaluated by Spark
    head      of aggregates and windows: the groups, or the partitions
    outputs   final expressions, computed by PostgreSQL while applying

    StatelessBlock     rows of joins                     AggregateBlock     rows of groups
    BagBlock           stored rows of joins              WindowBlock        stored rows of partitions
    PairsBlock         stored pairs of rows that PostgreSQL joins by a condition
    LimitBlock         the first rows of one input       RecursionBlock     rows of a recursion

A query is a chain of blocks, innermost first; the outputs of the last are the columns of the stream
table. A block is a plan: it reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from millstream.algebra.choice import Choice
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import JoinKind, Order, Relation, Scan, printed_kind
from millstream.algebra.table import Clock
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
"""What Spark does with a leaf column; this decides how its value travels.

    carry       passes it on and computes nothing with it
    key         joins or groups by it, or compares it: equal values travel in one form
    printed     chooses it in CASE or COALESCE: a bpchar keeps its trailing blanks

    number      computes with it: as an integer, a float or a decimal
    order       only compares it: a numeric of any number of digits, as a text in the order of the numbers
    extreme     finds its minimum or maximum: a numeric for which NaN is the greatest value

A numeric that is only added up travels in several columns, most of them NULL for most values:

    added       the number, if its type declares its digits; 0 for NaN, which is sent as `nan`
    nan         'NaN', or NULL
    coarse      the first 18 digits after the point, if the type declares no digits
    fine        the digits after those
    beyond      the number as text, if Spark has no type for it: NaN, an infinity, too many digits

An operand of arithmetic below a sum travels in two, of which one is NULL:

    tried       the number, if Spark's decimal can hold it
    untried     the number as text, otherwise
"""

LEVEL = "__ms_level"
"""The column of a recursion by UNION ALL that holds the number of steps that derive a row."""


@dataclass(frozen=True)
class Leaf:
    """A column that an input delivers: an expression that PostgreSQL evaluates while reading."""

    name: str
    expr: Expr
    type: PgType
    use: Use
    wire: Wire

    @property
    def sql(self) -> str:
        """The expression in the SELECT list of the read."""
        return (
            self.wire.key_sql(self.expr.sql)
            if self.use == "key"
            else self.wire.encode_sql(self.expr.sql)
        )

    def __str__(self) -> str:
        return f"{self.name} = {self.expr}" + (f" [{self.use}]" if self.use != "carry" else "")


def wire_for(type_: PgType, use: Use) -> Wire | None:
    """Return how a value of this type travels for a use; None if Spark cannot compute with the
    type.
    """
    if use in _PARTS:
        return _PARTS[use]
    return _WIRES.get(use, wire_of)(type_)


# The parts of a number that is only added up; they travel alike for all types.
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
        """Return the names of the columns of its table that it needs."""
        conditions = [
            *self.filters,
            *(temporal_filter.condition for temporal_filter in self.temporal_filters),
        ]
        exprs = [*(leaf.expr for leaf in self.leaves), *conditions]
        refs = [ref for expr in exprs for ref in expr.refs]
        refs += [ref for expansion in self.scan.expansions for ref in expansion.refs()]
        return {ref.column for ref in refs if ref.alias == self.scan.alias}

    def leaf(self, name: str) -> Leaf:
        """Return the leaf column of this name."""
        return next(leaf for leaf in self.leaves if leaf.name == name)

    def __str__(self) -> str:
        filters = " AND ".join(f"({condition})" for condition in self.filters)
        where = f" WHERE {filters}" if filters else ""
        columns = ", ".join(map(str, self.leaves))
        expansions = "".join(f", {expansion}" for expansion in self.scan.expansions)
        listed = ", ".join(map(str, self.temporal_filters))
        temporal_filters = f" TEMPORAL FILTER {listed}" if listed else ""
        return f"{self.name}  {self.of} AS {self.scan.alias}{expansions}: {columns}{where}{temporal_filters}"

    @property
    def of(self) -> str:
        """The printed name of the table or block that it reads."""
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
    """An equality of columns of two inputs; with `nulls`, two NULLs are equal too."""

    one: Ref
    other: Ref
    nulls: bool = False

    @property
    def condition(self) -> Expr:
        """The equality as SQL."""
        return Expr(
            f"{self.one.sql} {'IS NOT DISTINCT FROM' if self.nulls else '='} {self.other.sql}"
        )

    def swap(self) -> Pair:
        """Return the equality with its sides exchanged."""
        return Pair(self.other, self.one, self.nulls)


@dataclass(frozen=True)
class Match(Relation):
    """A join of the body: pairs of equal columns, and a residual condition that each pair of rows
    must satisfy.
    """

    kind: JoinKind
    left: Relation
    right: Relation
    pairs: tuple[Pair, ...]
    residual: tuple[Expr, ...] = ()
    mark: Ref | None = None

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.left.columns + ((self.mark,) if self.mark else self.right.columns)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """All conditions of the join: the equalities, then the residual."""
        return (*(pair.condition for pair in self.pairs), *self.residual)

    def headline(self) -> str:
        conditions = " AND ".join(map(str, self.conditions)) or "(all pairs)"
        return f"Join  {printed_kind(self.kind, self.mark)}{conditions}"


@dataclass(frozen=True)
class Edge:
    """Two inputs joined by equal leaf columns; without pairs, any row of one may join any row of
    the other.
    """

    left: str
    right: str
    pairs: tuple[tuple[str, str], ...] = ()
    kind: JoinKind = "inner"
    nulls: tuple[int, ...] = ()
    """The positions of the pairs that two NULLs satisfy too."""
    needed: bool = False
    """For a mark join: the result has only rows whose mark is true."""

    def reduces(self, sender: str) -> bool:
        """True if a row of `sender` reaches the result only if it has a match at the other end."""
        if self.kind == "full" or not self.pairs:
            return False
        return self.kind == "inner" or sender == self.right or self.needed

    def complete(self, sender: str) -> bool:
        """True if the other end must be complete for the rows of `sender`: the join asks whether a
        match exists.
        """
        return self.kind == "full" or (self.kind in ("left", "mark") and sender == self.left)

    def both(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return each end with its columns."""
        lefts = tuple(left for left, _ in self.pairs)
        rights = tuple(right for _, right in self.pairs)
        return [(self.left, lefts), (self.right, rights)]

    def ends(self, name: str) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
        """Return the other end, the columns of `name`, and those of the other end; None if `name`
        is no end.
        """
        (_, lefts), (_, rights) = self.both()
        if name == self.left:
            return self.right, lefts, rights
        if name == self.right:
            return self.left, rights, lefts
        return None

    def __str__(self) -> str:
        how = "" if self.kind == "inner" else f" ({self.kind})"
        if not self.pairs:
            return f"{self.left} x {self.right}{how}"
        equalities = []
        for position, (left, right) in enumerate(self.pairs):
            sign = "<=>" if position in self.nulls else "="
            equalities.append(f"{self.left}.{left} {sign} {self.right}.{right}")
        return " and ".join(equalities) + how


@dataclass(frozen=True)
class Branch:
    """One part of a block's UNION ALL: inputs joined along a tree of edges, then filtered and
    projected.
    """

    inputs: tuple[Input, ...]
    edges: tuple[Edge, ...]
    """A spanning tree of the inputs, along which demand travels. Further equalities are conditions
    of the body.
    """
    body: Relation
    sources: tuple[tuple[str, Ref | None], ...]
    """Each column of the body, with the leaf that it is; None if it is computed."""
    null_extended: frozenset[str] = frozenset()
    """The inputs that an outer join may null-extend."""

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.inputs) - 1:
            raise ValueError("the edges of a branch are not a spanning tree")

    def input(self, name: str) -> Input:
        """Return the input of this name."""
        return next(input_ for input_ in self.inputs if input_.name == name)


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
    """One column of a group's state and how it is maintained.

    sum        Spark sends the difference, PostgreSQL adds it: exact in numeric
    extreme    a better value replaces it; when the stored value is deleted, the group is recomputed
    recompute  the group is recomputed whenever it is touched (floating-point sums, which would drift)
    """

    name: str
    function: Function
    strategy: Strategy
    column: str | None
    """The column of the body that it accumulates; None for `rows`."""
    type: PgType
    """Its type in the state table."""
    wire: Wire | None = None
    order: str | None = None
    """For an extreme: the column of the body that Spark orders by; None if PostgreSQL must choose.
    """
    level: int | None = None
    """For `reaching`: the least value that is counted. For an extreme: up to this value, its loss
    is known from such counts. For `special`: the position of the counted value among NaN and the
    infinities.
    """

    def __str__(self) -> str:
        level = f" from {self.level}" if self.function == "reaching" else ""
        return f"{self.name} = {self.function}({self.column or '*'}{level}) [{self.strategy}]"


@dataclass(frozen=True)
class HolisticAggregate:
    """An aggregate that PostgreSQL recomputes over all rows `r` of a touched group, by an
    expression over them.
    """

    name: str
    expr: str

    def __str__(self) -> str:
        return f"{self.name} = {self.expr} [holistic]"


@dataclass(frozen=True)
class AggregateHead:
    """The state of each group: its keys and accumulators. Without keys there is exactly one group."""

    keys: tuple[BlockColumn, ...]
    accumulators: tuple[Accumulator, ...]
    holistic: tuple[HolisticAggregate, ...] = ()
    row_columns: tuple[BlockColumn, ...] = ()
    """The columns of the body that holistic aggregates are computed over."""

    @property
    def consolidated(self) -> bool:
        """True if changes that cancel must be consolidated before aggregating."""
        return bool(self.holistic) or any(a.strategy != "sum" for a in self.accumulators)

    @property
    def recoverable(self) -> bool:
        """True if some accumulators may have to be recomputed."""
        return any(a.strategy != "sum" for a in self.accumulators)

    @property
    def recomputed(self) -> bool:
        """True if every touched group is recomputed."""
        return any(a.strategy == "recompute" for a in self.accumulators)

    @property
    def extremes(self) -> tuple[Accumulator, ...]:
        """The accumulators of min() and max(), and of the most digits."""
        return tuple(a for a in self.accumulators if a.strategy == "extreme")

    @property
    def state_columns(self) -> tuple[tuple[Accumulator, str], ...]:
        """The columns that Spark returns after the keys, each with its accumulator; an extreme has
        two.
        """
        columns = list[tuple[Accumulator, str]]()
        for accumulator in self.accumulators:
            extreme = accumulator.strategy == "extreme"
            names = (
                [f"{accumulator.name}_in", f"{accumulator.name}_out"]
                if extreme
                else [accumulator.name]
            )
            columns += [(accumulator, name) for name in names]
        return tuple(columns)

    def __str__(self) -> str:
        keys = ", ".join(key.name for key in self.keys) or "(everything)"
        return f"Aggregate by {keys}: {', '.join(map(str, (*self.accumulators, *self.holistic)))}"


@dataclass(frozen=True)
class PartitionHead(AggregateHead):
    """The partitions of a window: all rows of a touched one are recomputed."""

    @property
    def consolidated(self) -> bool:
        return True


@dataclass(frozen=True)
class Output:
    """A column of the stream table: PostgreSQL's expression over the block's columns or state."""

    column: Column
    expr: str
    key: str | None = None
    """The group key that this output is; None if it is computed."""

    def __str__(self) -> str:
        return f"{self.column.name} {self.column.type} = {self.expr}"


@dataclass(frozen=True)
class Key:
    """The identity of a stream table's rows.

    columns   output columns that are unique together; the table has exactly the query's columns
    row_id    no output columns are unique: the table has one more column, `__ms_row_id`
    single    the table has at most one row
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
class Block:
    """The plan of one block: the base of all kinds."""

    name: str
    branches: tuple[Branch, ...]
    columns: tuple[BlockColumn, ...]
    outputs: tuple[Output, ...]
    key: Key
    having: str | None = field(default=None, kw_only=True)
    position: int = field(default=0, kw_only=True)
    """The index of the block in the chain."""
    choices: tuple[Choice, ...] = field(default=(), kw_only=True)
    """Why the block is there, and why it is maintained as it is. They are not part of the printed
    form.
    """

    @property
    def kind(self) -> str:
        """The name of the kind, which the catalog records."""
        raise NotImplementedError

    def with_choices(self, choices: Sequence[Choice]) -> Self:
        """Return the block with more choices, each once."""
        return replace(self, choices=tuple(dict.fromkeys((*self.choices, *choices))))

    def inputs(self) -> Iterator[Input]:
        """Yield the inputs of all branches."""
        for branch in self.branches:
            yield from branch.inputs

    @property
    def reads_clock(self) -> bool:
        """True if it reads the clock, or a filter of it does."""
        by = (
            scan
            for one in self.inputs()
            for temporal_filters in one.temporal_filters
            for scan in temporal_filters.by
        )
        return any(
            isinstance(scan.table, Clock) for scan in (*by, *(one.scan for one in self.inputs()))
        )

    def own_lines(self) -> list[str]:
        """Return the lines of the printed form that only this kind has."""
        return []

    def body_lines(self) -> list[str]:
        """Return the lines of the printed form that show the joins."""
        lines = []
        for number, branch in enumerate(self.branches):
            lines += [f"  branch {number}"] if len(self.branches) > 1 else []
            lines += [branch.body.tree(2), *(f"    edge  {edge}" for edge in branch.edges)]
        return lines

    def __str__(self) -> str:
        lines = [f"Block {self.name}", *self.body_lines(), *self.own_lines()]
        lines += [f"  having  {self.having}"] if self.having else []
        lines += [f"  output  {output}" for output in self.outputs]
        return "\n".join([*lines, f"  {self.key}"])


@dataclass(frozen=True)
class StatelessBlock(Block):
    """Rows of joins as they are: Spark sends those that are gained and lost."""

    @property
    def kind(self) -> str:
        return "none"


@dataclass(frozen=True, kw_only=True)
class GroupedBlock(Block):
    """Rows in groups, each with a state: the base of aggregates and windows."""

    head: AggregateHead

    def own_lines(self) -> list[str]:
        return [f"  head  {self.head}"]


@dataclass(frozen=True, kw_only=True)
class AggregateBlock(GroupedBlock):
    """One row for each group, read from its state."""

    @property
    def kind(self) -> str:
        return "aggregate"


@dataclass(frozen=True)
class MaterializedBlock(Block):
    """Rows that are stored as they are: the base of windows, limits, bags and recursions."""

    def own_lines(self) -> list[str]:
        return [f"  materialized as {self.kind}"]


@dataclass(frozen=True)
class BagBlock(MaterializedBlock):
    """The rows of a join: Spark sends those that are gained and lost."""

    @classmethod
    def of(cls, block: StatelessBlock) -> BagBlock:
        """Return the block whose rows are materialized."""
        return cls(
            block.name,
            block.branches,
            block.columns,
            block.outputs,
            block.key,
            choices=block.choices,
        )

    @property
    def kind(self) -> str:
        return "bag"


@dataclass(frozen=True, kw_only=True)
class PairsBlock(BagBlock):
    """The pairs of rows of two inputs that satisfy a condition: PostgreSQL joins them."""

    condition: Expr

    def __post_init__(self) -> None:
        if [len(branch.inputs) for branch in self.branches] != [2]:
            raise ValueError("pairs have two inputs")

    def own_lines(self) -> list[str]:
        return [f"  materialized as pairs by {self.condition}"]


@dataclass(frozen=True, kw_only=True)
class WindowBlock(GroupedBlock, MaterializedBlock):
    """The rows of partitions: PostgreSQL computes the outputs over all rows `r` of the touched
    ones.
    """

    head: PartitionHead

    def own_lines(self) -> list[str]:
        return [*GroupedBlock.own_lines(self), *MaterializedBlock.own_lines(self)]

    @property
    def kind(self) -> str:
        return "window"


@dataclass(frozen=True, kw_only=True)
class LimitBlock(MaterializedBlock):
    """The first rows of one input: PostgreSQL reads them in order."""

    tail: str
    """ORDER BY and LIMIT."""
    order: tuple[Order, ...] = ()
    """What the query orders by."""

    def __post_init__(self) -> None:
        if [len(branch.inputs) for branch in self.branches] != [1]:
            raise ValueError("a limit reads one input")

    def own_lines(self) -> list[str]:
        return [f"  materialized as limit {self.tail}"]

    @property
    def kind(self) -> str:
        return "limit"

    @property
    def input(self) -> Input:
        """The input that the rows are read from."""
        return self.branches[0].inputs[0]


@dataclass(frozen=True)
class RecursionTerm:
    """One branch of a recursion, with its own columns and final expressions. Its HAVING filters
    these.
    """

    block: StatelessBlock
    itself: str | None
    """The input that reads the recursion; None for a base term."""
    found_by: tuple[tuple[str, str], ...] = ()
    """Columns of the recursion, each with the column of the body that it is. They look up a row's
    derivations.
    """

    def lines(self) -> list[str]:
        """Return the lines of the printed form."""
        block = self.block
        lines = [f"  {block.name}", block.branches[0].body.tree(2)]
        lines += [f"    edge  {edge}" for edge in block.branches[0].edges]
        lines += [f"    where  {block.having}"] if block.having else []
        return [*lines, *(f"    output  {output}" for output in block.outputs)]


@dataclass(frozen=True, kw_only=True)
class RecursionBlock(MaterializedBlock):
    """The rows of a recursion: by UNION each once, by UNION ALL each with the number of steps that
    derive it.
    """

    each_once: bool
    text: str
    """A query from which PostgreSQL derives the columns."""
    terms: tuple[RecursionTerm, ...] = ()
    """Each is evaluated on its own; none until the server has described the columns, which they
    read.
    """

    def __post_init__(self) -> None:
        if self.branches != tuple(branch for term in self.terms for branch in term.block.branches):
            raise ValueError("the branches of a recursion are those of its terms")

    def body_lines(self) -> list[str]:
        return [line for term in self.terms for line in term.lines()]

    @property
    def kind(self) -> str:
        return "set" if self.each_once else "levels"
