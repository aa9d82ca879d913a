"""Blocks with an aggregate: keys, the state of each group, and the outputs that are read from it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from millstream.algebra.block import (
    AggregateBlock,
    AggregateHead,
    BlockColumn,
    Branch,
    Key,
    Output,
    Use,
)
from millstream.algebra.choice import Choice
from millstream.algebra.expr import Expr, Ref, conjuncts, unwrapped
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Filter,
    Measure,
    Named,
    Project,
    Relation,
)
from millstream.algebra.table import quoted
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import is_rewritten, wire_of
from millstream.compiler.blocks import aggregate_state, choices, row_keys
from millstream.compiler.blocks.branch import BranchPlan
from millstream.compiler.blocks.count_distinct import is_over_distinct_values
from millstream.compiler.blocks.flatten import FlatBranch
from millstream.compiler.blocks.stateless_block import cast_suffix, qualify_columns
from millstream.compiler.placement.arithmetic import ArithmeticArgument, split_arithmetic
from millstream.compiler.placement.decimals.displayed import displayed_scale, displayed_scale_leaf
from millstream.compiler.placement.place import Placer
from millstream.compiler.placement.placement import INT4, NUMERIC, TEXT, Placement
from millstream.compiler.refusal import collect
from millstream.compiler.server.questions import PlanningServer
from millstream.compiler.workaround import TWO_STEPS, UNITE_STREAM_TABLES, for_group_key
from millstream.errors import Unsupported

# A text that Spark orders by its bytes.
C_TEXT = replace(TEXT, collation="C")
C_WIRE = wire_of(C_TEXT)


@dataclass(frozen=True)
class Peeled:
    """The topmost aggregate, and the outputs and conditions above it as expressions over its
    columns.
    """

    aggregate: Aggregate | None
    outputs: tuple[Named, ...] = ()
    conditions: tuple[Expr, ...] = ()


def peel(relation: Relation) -> Peeled:
    """Take the filters and projections off the topmost aggregate; without one, `aggregate` is None."""
    if isinstance(relation, Aggregate):
        named = tuple(Named(ref.column, Expr(ref.sql)) for ref in relation.columns)
        return Peeled(relation, named)
    if isinstance(relation, Filter | Project):
        below = peel(relation.input)
        if below.aggregate is None:
            return below
        final = {
            ref: named.expr
            for ref, named in zip(relation.input.columns, below.outputs, strict=True)
        }
        if isinstance(relation, Filter):
            own = tuple(conjuncts(relation.predicate.substitute(final)))
            return Peeled(below.aggregate, below.outputs, below.conditions + own)
        outputs = tuple(Named(o.name, o.expr.substitute(final)) for o in relation.outputs)
        return Peeled(below.aggregate, outputs, below.conditions)
    return Peeled(None)


def build_group_block(
    peeled: Peeled,
    aggregate: Aggregate,
    flats: Sequence[FlatBranch],
    columns: Sequence[Column],
    server: PlanningServer,
) -> AggregateBlock | Unsupported:
    """Build the block of an aggregate, or return its refusal.

    A measure that is refused becomes holistic: PostgreSQL recomputes it over all rows of a touched
    group.
    """
    made = [
        choices.holistic(measure, None) for measure in aggregate.measures if _is_holistic(measure)
    ]
    while True:
        grouped = place_groups(aggregate, flats, server)
        if isinstance(grouped, Unsupported):
            return grouped
        if not grouped.refused:
            return _block(grouped, peeled, columns, made)
        made += [
            choices.holistic(aggregate.measures[number], why)
            for number, why in grouped.refused.items()
        ]
        aggregate = _with_holistic(aggregate, grouped.refused)


def _is_holistic(measure: Measure) -> bool:
    """True if a measure has a form that changes alone cannot update; the chain explains those of
    DISTINCT values.
    """
    return measure.call.text is not None and not is_over_distinct_values(measure.call)


def _drifting(aggregate: Aggregate, head: AggregateHead) -> list[Choice]:
    """Return a choice for each sum that is recomputed rather than added to."""
    columns = {
        accumulator.column
        for accumulator in head.accumulators
        if accumulator.strategy == "recompute"
    }
    names = aggregate_state.argument_columns(aggregate.measures)
    measures = [aggregate.measures[number] for number, name in names.items() if name in columns]
    return [choices.drifting(measure) for measure in measures]


def _with_holistic(aggregate: Aggregate, numbers: Container[int]) -> Aggregate:
    """Return an aggregate of which these measures are holistic."""
    measures = (
        replace(measure, call=aggregate_state.recomputed_call(measure.call))
        if number in numbers
        else measure
        for number, measure in enumerate(aggregate.measures)
    )
    return replace(aggregate, measures=tuple(measures))


@dataclass(frozen=True)
class PlacedGroups:
    """The branches below an aggregate with their expressions placed, and the measures that no sum
    maintains.
    """

    aggregate: Aggregate
    branches: tuple[GroupedBranch, ...]
    columns: tuple[tuple[str, Placement], ...] = ()
    """The columns of the body, on which the branches agree; empty if measures are refused."""
    refused: Mapping[int, Unsupported] = field(default_factory=dict)


def place_groups(
    aggregate: Aggregate, flats: Sequence[FlatBranch], server: PlanningServer
) -> PlacedGroups | Unsupported:
    """Place the keys and the arguments of an aggregate in each branch; return the refusal of a key."""
    branches = _placed_branches(aggregate, flats, server)
    if isinstance(branches, Unsupported):
        return branches
    refused = {number: why for branch in branches for number, why in branch.refused.items()}
    if refused:
        return PlacedGroups(aggregate, tuple(branches), refused=refused)
    free = [
        key.name for key in aggregate.keys if all(branch.is_free(key.name) for branch in branches)
    ]
    for branch in branches:
        if refusal := branch.add_displayed(free):
            return refusal
    columns = agreed_columns([branch.named for branch in branches])
    if isinstance(columns, Unsupported):
        return columns
    return PlacedGroups(
        aggregate, tuple(branches), tuple(columns), _without_type(aggregate, dict(columns))
    )


def place_partitions(
    rows: Aggregate, flats: Sequence[FlatBranch], server: PlanningServer
) -> PlacedGroups | Unsupported:
    """Place the keys and the rows of a window's partitions: all of its measures are holistic."""
    branches = _placed_branches(rows, flats, server)
    if isinstance(branches, Unsupported):
        return branches
    columns = agreed_columns([branch.named for branch in branches])
    return (
        columns
        if isinstance(columns, Unsupported)
        else PlacedGroups(rows, tuple(branches), tuple(columns))
    )


def _placed_branches(
    aggregate: Aggregate, flats: Sequence[FlatBranch], server: PlanningServer
) -> list[GroupedBranch] | Unsupported:
    branches, first = list[GroupedBranch](), 0
    for flat in flats:
        branch = GroupedBranch(flat, first, aggregate, server, alone=len(flats) == 1)
        if refusal := branch.place():
            return refusal
        branches.append(branch)
        first += len(branch.plan.branch_names.scans)
    return branches


def _without_type(aggregate: Aggregate, columns: Mapping[str, Placement]) -> dict[int, Unsupported]:
    """Return the refusals of least and greatest values whose type only Spark knows."""
    found = dict[int, Unsupported]()
    for number, name in aggregate_state.argument_columns(aggregate.measures).items():
        function = aggregate.measures[number].call.function
        if function in ("min", "max") and columns[name].type is None:
            found[number] = aggregate_state.refuse_extreme(function)
    return found


def _block(
    grouped: PlacedGroups, peeled: Peeled, columns: Sequence[Column], made: Sequence[Choice]
) -> AggregateBlock | Unsupported:
    aggregate, by_name = grouped.aggregate, dict(grouped.columns)
    key_types = collect(_type_of_key(by_name[key.name], key) for key in aggregate.keys)
    if isinstance(key_types, Unsupported):
        return key_types
    branches = collect(branch.finish() for branch in grouped.branches)
    if isinstance(branches, Unsupported):
        return branches
    state, reads = aggregate_state.GroupState(), dict[Ref, Expr]()
    for number, measure in enumerate(aggregate.measures):
        reads[Ref(aggregate.alias, measure.name)] = Expr(
            f"({_read(number, measure, grouped, by_name, state)})"
        )
    key_columns = tuple(
        BlockColumn(key.name, type_, by_name[key.name].wire)
        for key, type_ in zip(aggregate.keys, key_types, strict=True)
    )
    reads |= {
        Ref(aggregate.alias, key.name): Expr(_read_key(key.name, by_name, state))
        for key in aggregate.keys
    }
    body = tuple(BlockColumn(name, one.type or NUMERIC, one.wire) for name, one in grouped.columns)
    having = (
        " AND ".join(f"({qualify_columns(condition, reads)})" for condition in peeled.conditions)
        or None
    )
    row_columns = tuple(column for column in body if column.name in grouped.branches[0].row_columns)
    head = AggregateHead(
        key_columns, tuple(state.accumulators.values()), tuple(state.holistic), row_columns
    )
    key = _group_key(peeled, aggregate, key_columns, columns)
    outputs = _outputs(peeled, aggregate, reads, columns)
    block = AggregateBlock("result", tuple(branches), body, outputs, key, head=head, having=having)
    return block.with_choices([*made, *_drifting(aggregate, head)])


def _outputs(
    peeled: Peeled, aggregate: Aggregate, reads: Mapping[Ref, Expr], columns: Sequence[Column]
) -> tuple[Output, ...]:
    """Return the columns of the block's rows: expressions over what is read from the state."""
    shown = {Ref(aggregate.alias, key.name): key.name for key in aggregate.keys}
    return tuple(
        Output(
            c,
            f"({qualify_columns(named.expr, reads)}){cast_suffix(c)}",
            shown.get(ref) if (ref := named.expr.as_ref) else None,
        )
        for c, named in zip(columns, peeled.outputs, strict=True)
    )


def _read_key(
    name: str, by_name: Mapping[str, Placement], state: aggregate_state.GroupState
) -> str:
    """Return the SQL of a key as PostgreSQL displays it: with the digits of 2.50, the sign of -0,
    trailing blanks.
    """
    key, type_ = f"s.{quoted(name)}", by_name[name].type
    assert type_ is not None
    if type_.keeps_blanks:
        return f"({key}::text || repeat(' ', {state.digits(f'{name}s')}))::{type_.name}"
    if f"{name}w" in by_name:
        written = aggregate_state.ArgumentColumns(f"{name}w", by_name[f"{name}w"])
        return f"({state.read(Call('max', Expr(key)), written)})::{type_.name}"
    if f"{name}p" in by_name:
        return f"CASE WHEN {key} = 0 AND {state.reaching(f'{name}p', 1)} = 0 THEN '-0'::{type_.name} ELSE {key} END"
    return state.showing(key, f"{name}s") if f"{name}s" in by_name else key


def _read(
    number: int,
    measure: Measure,
    grouped: PlacedGroups,
    by_name: Mapping[str, Placement],
    state: aggregate_state.GroupState,
) -> str:
    """Return the SQL that reads a measure from the state."""
    branch = grouped.branches[0]
    if measure.call.text is not None:
        return state.add_holistic(qualify_columns(branch.texts[number], branch.final))
    # Measures of the same argument share its columns.
    name = branch.columns_of.get(number, "")
    order, shown, fine, beyond = (
        name + kind if name + kind in by_name else None for kind in "osfb"
    )
    over = None
    if name in by_name:
        over = aggregate_state.ArgumentColumns(
            name, by_name[name], order, shown, fine, beyond, branch.expressions.get(name)
        )
    return state.read(measure.call, over)


class GroupedBranch:
    """One branch below an aggregate: its keys, the arguments of its measures, the columns of
    holistic aggregates.
    """

    def __init__(
        self,
        flat: FlatBranch,
        first: int,
        aggregate: Aggregate,
        server: PlanningServer,
        *,
        alone: bool,
    ) -> None:
        self.keys = {key.name: plainly(flat.over(key.expr)) for key in aggregate.keys}
        needs = [aggregate_state.arguments(measure.call) for measure in aggregate.measures]
        self.arguments = [
            [replace(one, expr=plainly(flat.over(one.expr))) for one in need] for need in needs
        ]
        holistic = {
            n: one.call.text
            for n, one in enumerate(aggregate.measures)
            if one.call.text is not None
        }
        # Of one branch, columns are gathered as its tables have them; of several, as the
        # aggregate's input does.
        self.texts = {n: flat.over(text) if alone else text for n, text in holistic.items()}
        refs = list(dict.fromkeys(ref for text in self.texts.values() for ref in sorted(text.refs)))
        self.rows = {ref: Expr(ref.sql) if alone else plainly(flat.outputs[ref]) for ref in refs}
        wanted = [
            *self.keys.values(),
            *(one.expr for need in self.arguments for one in need),
            *self.rows.values(),
        ]
        self.plan = BranchPlan(flat, first, wanted, server, alone=alone)
        self.alone, self.expressions = alone, dict[str, str]()
        self.columns_of = aggregate_state.argument_columns(aggregate.measures)
        self.named = list[tuple[str, Placement]]()
        self.refused = dict[int, Unsupported]()
        self.final, self.row_columns = dict[Ref, Expr](), frozenset[str]()

    def place(self) -> Unsupported | None:
        """Place the keys, the arguments and the columns of holistic aggregates; return the refusal
        of one of these.

        A measure whose argument no sum can take is no refusal of the branch: it is noted in
        `refused`.
        """
        keys = ((name, _key(self.plan.placer, expr)) for name, expr in self.keys.items())
        return self._add(keys) or self._place_arguments() or self._place_rows()

    def _place_arguments(self) -> Unsupported | None:
        first = {name: number for number, name in reversed(self.columns_of.items())}
        for number in sorted(first.values()):
            for argument in self.arguments[number]:
                if refusal := self._place(number, argument):
                    return refusal
        shared = {self.columns_of[number]: why for number, why in self.refused.items()}
        self.refused = {
            number: shared[name] for number, name in self.columns_of.items() if name in shared
        }
        return None

    def _place_rows(self) -> Unsupported | None:
        before = len(self.named)
        for number, ref in enumerate(self.rows):
            if refusal := self._place_row_column(f"g{number}", ref):
                return refusal
        self.row_columns = frozenset(name for name, _ in self.named[before:])
        return None

    def _place_row_column(self, name: str, ref: Ref) -> Unsupported | None:
        """Place a column of the rows; of a null-extended number across tables, the columns that it
        is computed from.
        """
        if not (self.alone and self.plan.placer.is_computed_number(ref)):
            self.final[ref] = Expr(f"r.{quoted(name)}")
            return self._add([(name, self.plan.placer.place(self.rows[ref], "carry"))])
        over = self.plan.placer.over_columns(Expr(ref.sql))
        if isinstance(over, Unsupported):
            return over
        expression, columns = over
        names = {column: f"{name}_{number}" for number, column in enumerate(columns)}
        read = {column: Expr(f"r.{quoted(own)}") for column, own in names.items()}
        self.final[ref] = Expr(f"({qualify_columns(expression, read)})")
        return self._add((names[column], placed) for column, placed in columns.items())

    def finish(self) -> Branch | Unsupported:
        """Return the finished branch; all its columns must be placed."""
        return self.plan.finish(self.named)

    def is_free(self, key: str) -> bool:
        """True if a key is a numeric whose type declares no scale."""
        return self.plan.placer.has_unknown_digits(self.keys[key])

    def add_displayed(self, free: Sequence[str]) -> Unsupported | None:
        """Add what PostgreSQL displays of keys beside their value: the scale of `free` ones, signs,
        trailing blanks.
        """
        keys = [(name, placed) for name, placed in self.named if name in self.keys]
        beside = [
            (f"{name}s", displayed_scale_leaf(self.plan.placer, self.keys[name])) for name in free
        ]
        beside += [
            (f"{name}p", self._sign(name)) for name, placed in keys if placed.wire.number == "float"
        ]
        padded = [
            name for name, placed in keys if placed.type is not None and placed.type.keeps_blanks
        ]
        beside += [(f"{name}s", self._blanks(name)) for name in padded]
        rewritten = [
            name for name, placed in keys if placed.type is not None and is_rewritten(placed.type)
        ]
        return self._add([*beside, *((f"{name}w", self._written(name)) for name in rewritten)])

    def _add(self, named: Iterable[tuple[str, Placement | Unsupported]]) -> Unsupported | None:
        """Add columns of the body; return the refusal of one."""
        for name, placed in named:
            if isinstance(placed, Unsupported):
                return placed
            self.named.append((name, placed))
        return None

    def _sign(self, key: str) -> Placement | Unsupported:
        """Return 0 for -0, which is equal to 0, and 1 for any other value."""
        # The key itself travels as 0.
        value = self.plan.placer.place(self.keys[key], "carry")
        if isinstance(value, Unsupported):
            return value
        plain = f"CASE WHEN CAST({value.expr.sql} AS TEXT) = '-0.0' THEN 0 ELSE 1 END"
        return Placement(Expr.parse(plain), wire_of(INT4), INT4)

    def _blanks(self, key: str) -> Placement | Unsupported:
        """Return the number of trailing blanks of a bpchar without a length.

        PostgreSQL returns one of the equal values of a group; Millstream returns the longest.
        """
        value = self.plan.placer.place(self.keys[key], "printed")
        if isinstance(value, Unsupported):
            return value
        blanks = f"LENGTH({value.expr.sql}) - LENGTH(RTRIM({value.expr.sql}))"
        return Placement(Expr.parse(blanks), wire_of(INT4), INT4)

    def _written(self, key: str) -> Placement | Unsupported:
        """Return a key as it is written, not in the form in which it is compared.

        A group shows the greatest of these texts.
        """
        value = self.plan.placer.place(self.keys[key], "carry")
        return value if isinstance(value, Unsupported) else Placement(value.expr, C_WIRE, C_TEXT)

    def _place(self, number: int, argument: aggregate_state.Argument) -> Unsupported | None:
        """Place an argument and what goes beside it; a refused argument is noted."""
        placer, name, added = self.plan.placer, f"a{number}", _added(self.plan.placer, argument)
        found = self._argument(argument, added)
        placed = found.value if isinstance(found, ArithmeticArgument) else found
        if isinstance(placed, Unsupported) or _is_real(argument, placed):
            self.refused[number] = (
                placed if isinstance(placed, Unsupported) else _refuse_real(argument.expr)
            )
            return None
        if isinstance(found, ArithmeticArgument):
            self.named.append((f"{name}b", found.operands))
            self.expressions[name] = found.expression
        beside: list[tuple[str, Placement | Unsupported]] = [(name, placed)]
        beside += [(f"{name}{_BESIDE[use]}", placer.place(argument.expr, use)) for use in added[1:]]
        if argument.use == "number" and (scale := displayed_scale(placer, argument.expr, placed)):
            beside.append((f"{name}s", scale))
        type_ = placer.types.get(argument.expr)
        if argument.use == "carry" and type_ is not None and aggregate_state.order_use(type_):
            beside.append((f"{name}o", placer.place(argument.expr, "extreme")))
        return self._add(beside)

    def _argument(
        self, argument: aggregate_state.Argument, added: Sequence[Use]
    ) -> Placement | ArithmeticArgument | Unsupported:
        placer = self.plan.placer
        with placer.above_joins():
            if argument.use == "number" and self.alone:
                computed = split_arithmetic(placer, argument.expr)
                if computed is not None:
                    return computed
            return placer.place(argument.expr, added[0] if added else argument.use)


def _is_real(argument: aggregate_state.Argument, placed: Placement) -> bool:
    return argument.use == "number" and placed.type is not None and placed.type.base == "float4"


def _refuse_real(expression: Expr) -> Unsupported:
    """Return the refusal of a sum of reals."""
    return Unsupported.construct(
        f"a sum of {expression}, which is real",
        reason="PostgreSQL adds values of type real as they are; Spark would add them as doubles.",
        way_round="Cast it to double precision.",
    )


_BESIDE: dict[Use, str] = {"fine": "f", "beyond": "b", "nan": "b"}
# A sum of so many digits may have more than Spark's 38 after some thousand rows.
_LONG = 34


def _added(placer: Placer, argument: aggregate_state.Argument) -> tuple[Use, ...]:
    """Return the uses of a numeric of one table that is only added up: its main part, then those
    beside it.
    """
    type_ = placer.types.get(argument.expr)
    if (
        argument.use != "number"
        or not placer.is_over_one_table(argument.expr)
        or type_ is None
        or type_.base != "numeric"
    ):
        return ()
    declared = type_.precision is not None and type_.precision <= _LONG
    return ("added", "nan") if declared else ("coarse", "fine", "beyond")


def plainly(expression: Expr) -> Expr:
    """Return an expression without the parentheses around it."""
    return Expr.of(unwrapped(expression.tree))


def _key(placer: Placer, expression: Expr) -> Placement | Unsupported:
    with placer.above_joins():
        placed = placer.place(expression, "key")
    if isinstance(placed, Unsupported) or placed.wire.equal:
        return placed
    return Unsupported.construct(
        f"grouping by {expression}",
        reason="Spark's equality of its type is not PostgreSQL's.",
        way_round=for_group_key(placed.type) if placed.type else TWO_STEPS,
        node=expression,
    )


def _type_of_key(placed: Placement, key: Named) -> PgType | Unsupported:
    return placed.type or Unsupported.construct(
        f"grouping by {key.expr}",
        reason="Its type is not known exactly.",
        way_round=TWO_STEPS,
        node=key.expr,
    )


def agreed_columns(
    placed: list[list[tuple[str, Placement]]],
) -> list[tuple[str, Placement]] | Unsupported:
    """Return the columns of the branches, or the refusal of a column that travels differently in
    two of them.
    """
    travelling = [[(name, one.wire) for name, one in branch] for branch in placed]
    if all(branch == travelling[0] for branch in travelling):
        return placed[0]
    return Unsupported.construct(
        "an aggregate over a UNION ALL whose parts have different representations in Spark",
        reason="One column has different types in its parts.",
        way_round=UNITE_STREAM_TABLES,
    )


def _group_key(
    peeled: Peeled,
    aggregate: Aggregate,
    key_columns: Sequence[BlockColumn],
    columns: Sequence[Column],
) -> Key:
    shown = dict[str, str]()
    for column, named in zip(columns, peeled.outputs, strict=True):
        ref = named.expr.as_ref
        if ref is not None and ref.alias == aggregate.alias:
            shown.setdefault(ref.column, column.name)
    return row_keys.group_key(shown, tuple(Column(key.name, key.type) for key in key_columns))
