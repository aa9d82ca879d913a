"""Blocks with an aggregate: keys, the state of each group, and the outputs that are read from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from millstream.algebra.block import AggregateHead, Block, BlockColumn, Branch, Key, Output, Use
from millstream.algebra.expr import Expr, Ref, conjuncts, unwrapped
from millstream.algebra.relation import Aggregate, Filter, Measure, Named, Project, Relation
from millstream.algebra.table import quoted
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import wire_of
from millstream.compiler.blocks import aggregate_state, row_keys
from millstream.compiler.blocks.branch import BranchPlan
from millstream.compiler.blocks.flatten import FlatBranch
from millstream.compiler.blocks.stateless_block import cast_suffix, qualify_columns
from millstream.compiler.placement.arithmetic import split_arithmetic
from millstream.compiler.placement.decimals.displayed import displayed_scale, displayed_scale_leaf
from millstream.compiler.placement.place import Placer
from millstream.compiler.placement.placement import INT4, NUMERIC, Placement
from millstream.compiler.refusal import accepted
from millstream.compiler.server.questions import PlanningServer
from millstream.compiler.workaround import TWO_STEPS, UNITE_STREAM_TABLES, for_group_key
from millstream.errors import Unsupported


@dataclass(frozen=True)
class Peeled:
    """The topmost aggregate, and the outputs and conditions above it as expressions over its columns."""

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
        final = {ref: named.expr for ref, named in zip(relation.input.columns, below.outputs, strict=True)}
        if isinstance(relation, Filter):
            own = tuple(conjuncts(relation.predicate.substitute(final)))
            return Peeled(below.aggregate, below.outputs, below.conditions + own)
        outputs = tuple(Named(o.name, o.expr.substitute(final)) for o in relation.outputs)
        return Peeled(below.aggregate, outputs, below.conditions)
    return Peeled(None)


class _NotIncremental(Exception):
    """Raised for a measure that Spark cannot maintain: it becomes a holistic aggregate."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def build_group_block(
    peeled: Peeled, aggregate: Aggregate, flats: Sequence[FlatBranch], columns: Sequence[Column], server: PlanningServer
) -> Block:
    """Build the block of an aggregate; a measure that Spark cannot maintain becomes holistic, one after another."""
    while True:
        try:
            return _with_groups(peeled, aggregate, flats, columns, server)
        except _NotIncremental as one:
            number = one.number
            measure = replace(
                aggregate.measures[number], call=aggregate_state.recomputed_call(aggregate.measures[number].call)
            )
            listed = (*aggregate.measures[:number], measure, *aggregate.measures[number + 1 :])
            aggregate = replace(aggregate, measures=listed)


def _with_groups(
    peeled: Peeled, aggregate: Aggregate, flats: Sequence[FlatBranch], columns: Sequence[Column], server: PlanningServer
) -> Block:
    needs = [aggregate_state.arguments(measure.call) for measure in aggregate.measures]
    plans, first = list[GroupedBranch](), 0
    for flat in flats:
        plans.append(GroupedBranch(flat, first, aggregate, needs, server, alone=len(flats) == 1))
        first += len(plans[-1].plan.atoms.scans)
    for name in [key.name for key in aggregate.keys if all(plan.is_free(key.name) for plan in plans)]:
        for plan in plans:
            plan.add_digits(name)
    for plan in plans:
        plan.add_signs()
        plan.add_blanks()
    agreed = agreed_columns([plan.named for plan in plans])
    by_name = dict(agreed)
    state, reads = aggregate_state.GroupState(), dict[Ref, Expr]()
    for number, measure in enumerate(aggregate.measures):
        reads[Ref(aggregate.alias, measure.name)] = Expr(f"({_read(number, measure, needs, by_name, state, plans[0])})")
    key_columns = tuple(
        BlockColumn(key.name, _typed(by_name[key.name], key), by_name[key.name].wire) for key in aggregate.keys
    )
    reads |= {Ref(aggregate.alias, key.name): Expr(_read_key(key.name, by_name, state)) for key in aggregate.keys}
    body = tuple(BlockColumn(name, one.type or NUMERIC, one.wire) for name, one in agreed)
    shown = {Ref(aggregate.alias, key.name): key.name for key in aggregate.keys}
    outputs = tuple(
        Output(
            c,
            f"({qualify_columns(named.expr, reads)}){cast_suffix(c)}",
            shown.get(ref) if (ref := named.expr.as_ref) else None,
        )
        for c, named in zip(columns, peeled.outputs, strict=True)
    )
    having = " AND ".join(f"({qualify_columns(condition, reads)})" for condition in peeled.conditions) or None
    members = tuple(column for column in body if column.name in plans[0].members)
    head = AggregateHead(key_columns, tuple(state.accumulators.values()), tuple(state.holistic), members)
    key = _group_key(peeled, aggregate, key_columns, columns)
    return Block("result", tuple(plan.branch for plan in plans), body, head, outputs, having, key)


def _read_key(name: str, by_name: Mapping[str, Placement], state: aggregate_state.GroupState) -> str:
    """Return the SQL of a key as PostgreSQL displays it: with the digits of 2.50, the sign of -0, trailing blanks."""
    key, type_ = f"s.{quoted(name)}", by_name[name].type
    assert type_ is not None
    if type_.keeps_blanks:
        return f"({key}::text || repeat(' ', {state.digits(f'{name}s')}))::{type_.name}"
    if f"{name}p" in by_name:
        return f"CASE WHEN {key} = 0 AND {state.reaching(f'{name}p', 1)} = 0 THEN '-0'::{type_.name} ELSE {key} END"
    return state.showing(key, f"{name}s") if f"{name}s" in by_name else key


def _read(
    number: int,
    measure: Measure,
    needs: Sequence[tuple[aggregate_state.Argument, ...]],
    by_name: Mapping[str, Placement],
    state: aggregate_state.GroupState,
    plan: GroupedBranch,
) -> str:
    """Return the SQL that reads a measure from the state."""
    if measure.call.text is not None:
        return state.add_holistic(qualify_columns(plan.texts[number], plan.final))
    # Measures of the same argument share its columns.
    name = f"a{needs.index(needs[number])}"
    order, shown, fine, beyond = (name + kind if name + kind in by_name else None for kind in "osfb")
    over = None
    if name in by_name:
        over = aggregate_state.ArgumentColumns(
            name, by_name[name], order, shown, fine, beyond, plan.expressions.get(name)
        )
    try:
        return state.read(measure.call, over)
    except Unsupported as error:
        raise _NotIncremental(number) from error


class GroupedBranch:
    """One branch below an aggregate: its keys, the arguments of its measures, the columns of holistic aggregates."""

    def __init__(
        self,
        flat: FlatBranch,
        first: int,
        aggregate: Aggregate,
        needs: Sequence[tuple[aggregate_state.Argument, ...]],
        server: PlanningServer,
        *,
        alone: bool,
    ) -> None:
        keys = [plainly(flat.over(key.expr)) for key in aggregate.keys]
        self.keys = {key.name: expr for key, expr in zip(aggregate.keys, keys, strict=True)}
        arguments = [[aggregate_state.Argument(plainly(flat.over(a.expr)), a.use) for a in need] for need in needs]
        holistic = {n: one.call.text for n, one in enumerate(aggregate.measures) if one.call.text is not None}
        # Of one branch, columns are gathered as its tables have them; of several, as the aggregate's input does.
        self.texts = {n: flat.over(text) if alone else text for n, text in holistic.items()}
        refs = list(dict.fromkeys(ref for text in self.texts.values() for ref in sorted(text.refs)))
        binding_refs = {ref: Expr(ref.sql) if alone else plainly(flat.outputs[ref]) for ref in refs}
        wanted = [*keys, *(a.expr for need in arguments for a in need), *binding_refs.values()]
        self.plan = BranchPlan(flat, first, wanted, server, alone=alone)
        self.alone, self.expressions = alone, dict[str, str]()
        self.named = [(key.name, _key(self.plan.placer, expr)) for key, expr in zip(aggregate.keys, keys, strict=True)]
        for number, need in enumerate(arguments):
            for argument in need if needs.index(needs[number]) == number else ():
                self._place(number, argument, aggregate.measures[number].call.function)
        self.final, self.members = dict[Ref, Expr](), set[str]()
        for number, (ref, expr) in enumerate(binding_refs.items()):
            self.named.append((f"g{number}", accepted(self.plan.placer.place(expr, "carry"))))
            self.final[ref] = Expr(f"r.{quoted(f'g{number}')}")
            self.members.add(f"g{number}")

    @cached_property
    def branch(self) -> Branch:
        """The finished branch; all its columns must be placed."""
        return self.plan.finish(self.named)

    def is_free(self, key: str) -> bool:
        """True if a key is a numeric whose type declares no scale."""
        return self.plan.placer.free(self.keys[key])

    def add_digits(self, key: str) -> None:
        """Add a column with the displayed scale of a key."""
        self.named.append((f"{key}s", accepted(displayed_scale_leaf(self.plan.placer, self.keys[key]))))

    def add_signs(self) -> None:
        """Add a column for each floating-point key: 0 for -0, which is equal to 0, and 1 for any other value."""
        for name, placed in [(name, placed) for name, placed in self.named if name in self.keys]:
            if placed.wire.number == "float":
                # The key itself travels as 0.
                value = accepted(self.plan.placer.place(self.keys[name], "carry")).expr.sql
                plain = f"CASE WHEN CAST({value} AS TEXT) = '-0.0' THEN 0 ELSE 1 END"
                self.named.append((f"{name}p", Placement(Expr.parse(plain), wire_of(INT4), INT4)))

    def add_blanks(self) -> None:
        """Add a column with the number of trailing blanks of each key that is bpchar without a length.

        PostgreSQL returns one of the equal values of a group; Millstream returns the longest.
        """
        for name, placed in [(name, placed) for name, placed in self.named if name in self.keys]:
            if placed.type is not None and placed.type.keeps_blanks:
                value = accepted(self.plan.placer.place(self.keys[name], "printed")).expr.sql
                blanks = f"LENGTH({value}) - LENGTH(RTRIM({value}))"
                self.named.append((f"{name}s", Placement(Expr.parse(blanks), wire_of(INT4), INT4)))

    def _place(self, number: int, argument: aggregate_state.Argument, function: str) -> None:
        placer = self.plan.placer
        added = _added(placer, argument)
        computed = None
        try:
            with placer.above_joins():
                if argument.use == "number" and self.alone:
                    computed = accepted(split_arithmetic(placer, argument.expr))
                use = added[0] if added else argument.use
                placed = computed.value if computed else accepted(placer.place(argument.expr, use))
        except Unsupported as error:
            raise _NotIncremental(number) from error
        if computed:
            self.named.append((f"a{number}b", computed.operands))
            self.expressions[f"a{number}"] = computed.expression
        if argument.use == "number" and placed.type is not None and placed.type.base == "float4":
            # PostgreSQL adds them as they are; Spark would add them as doubles.
            raise _NotIncremental(number)
        self.named.append((f"a{number}", placed))
        for use in added[1:]:
            self.named.append((f"a{number}{_BESIDE[use]}", accepted(placer.place(argument.expr, use))))
        if argument.use == "number" and (scale := accepted(displayed_scale(placer, argument.expr, placed))):
            self.named.append((f"a{number}s", scale))
        type_ = placer.types.get(argument.expr)
        if argument.use == "carry" and type_ is not None and aggregate_state.order_use(type_):
            self.named.append((f"a{number}o", accepted(placer.place(argument.expr, "extreme"))))


_BESIDE: dict[Use, str] = {"fine": "f", "beyond": "b", "nan": "b"}
# A sum of so many digits may have more than Spark's 38 after some thousand rows.
_LONG = 34


def _added(placer: Placer, argument: aggregate_state.Argument) -> tuple[Use, ...]:
    """Return the uses of a numeric of one table that is only added up: its main part, then those beside it."""
    type_ = placer.types.get(argument.expr)
    if argument.use != "number" or not placer.single(argument.expr) or type_ is None or type_.base != "numeric":
        return ()
    declared = type_.precision is not None and type_.precision <= _LONG
    return ("added", "nan") if declared else ("coarse", "fine", "beyond")


def plainly(expression: Expr) -> Expr:
    """Return an expression without the parentheses around it."""
    return Expr.of(unwrapped(expression.tree))


def _key(placer: Placer, expression: Expr) -> Placement:
    with placer.above_joins():
        placed = accepted(placer.place(expression, "key"))
    if not placed.wire.equal:
        raise Unsupported.construct(
            f"grouping by {expression}",
            reason="Spark's equality of its type is not PostgreSQL's.",
            way_round=for_group_key(placed.type) if placed.type else TWO_STEPS,
        )
    return placed


def _typed(placed: Placement, key: Named) -> PgType:
    if placed.type is None:
        raise Unsupported.construct(
            f"grouping by {key.expr}",
            reason="Its type is not known exactly.",
            way_round=TWO_STEPS,
        )
    return placed.type


def agreed_columns(placed: list[list[tuple[str, Placement]]]) -> list[tuple[str, Placement]]:
    """Return the columns of the branches; raise Unsupported if a column travels differently in two of them."""
    travelling = [[(name, one.wire) for name, one in branch] for branch in placed]
    if any(branch != travelling[0] for branch in travelling):
        raise Unsupported.construct(
            "an aggregate over a UNION ALL whose parts have different representations in Spark",
            reason="One column has different types in its parts.",
            way_round=UNITE_STREAM_TABLES,
        )
    return placed[0]


def _group_key(
    peeled: Peeled, aggregate: Aggregate, key_columns: Sequence[BlockColumn], columns: Sequence[Column]
) -> Key:
    shown = dict[str, str]()
    for column, named in zip(columns, peeled.outputs, strict=True):
        ref = named.expr.as_ref
        if ref is not None and ref.alias == aggregate.alias:
            shown.setdefault(ref.column, column.name)
    return row_keys.group_key(shown, tuple(Column(key.name, key.type) for key in key_columns))
