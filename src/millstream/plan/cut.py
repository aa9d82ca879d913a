"""Cut a query's Relation into blocks, innermost first.

Each stateful operator below the top becomes a block of its own, and what stands above reads that block like a
table; two that mean the same are one block. What stands above the topmost aggregate becomes outputs and HAVING,
computed by PostgreSQL while applying; what stands below it is flattened into branches, and every expression is placed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.algebra.expr import Expr, Ref, conjuncts, unwrapped
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Filter,
    Join,
    Limit,
    Measure,
    Named,
    Order,
    Project,
    Relation,
    Scan,
    UnionAll,
    Window,
)  # fmt: skip
from millstream.algebra.rename import canonical
from millstream.algebra.table import Table, quoted
from millstream.algebra.types import Column, PgType
from millstream.errors import Unsupported
from millstream.plan import keys, measures
from millstream.plan.block import AggregateHead, Block, BlockColumn, Branch, Kept, Key, Output
from millstream.plan.body import BranchPlan
from millstream.plan.flatten import Flat, flatten
from millstream.plan.place import Placed, Placer
from millstream.plan.region import Region
from millstream.plan.server import Server

# Until the server has told what an inner block's columns are.
_UNTOLD = PgType(705, "unknown", "unknown", kind="pseudo")


def cut(relation: Relation, columns: Sequence[Column], server: Server) -> tuple[Block, ...]:
    """The blocks of a query, innermost first; the last one's outputs are the stream table."""
    chain = _Chain(server)
    peeled = _peel(relation)
    if peeled.aggregate is None:
        below = chain.cleared(relation)
        last = chain.placed(below, lambda flats: _plain(below, flats, columns, server))
    else:
        last = chain.grouped(peeled, chain.over_tables(peeled.aggregate), columns)
    return (*chain.blocks, replace(last, position=len(chain.blocks)))


class _Chain:
    """The inner blocks of a query."""

    def __init__(self, server: Server) -> None:
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
        if isinstance(relation, Filter | Project):
            return replace(relation, input=self.cleared(relation.input))
        if isinstance(relation, Join):
            return self._joined(replace(relation, left=self.cleared(relation.left), right=self.cleared(relation.right)))
        if isinstance(relation, UnionAll):
            return replace(relation, parts=tuple(map(self.cleared, relation.parts)))
        return relation

    def over_tables(self, aggregate: Aggregate) -> Aggregate:
        """The same over tables and blocks alone."""
        return replace(aggregate, input=self.cleared(aggregate.input))

    def _over_one_table(self, limit: Limit) -> Limit:
        """The same over one table or block; rows of a join are kept first."""
        below = self.cleared(limit.input)
        if _is_one_table(below):
            return replace(limit, input=below)
        rows, over = self._rows(below)
        order = tuple(Order(one.expr.substitute(over), one.how) for one in limit.order)
        return replace(limit, input=rows, order=order)

    def _rows(self, relation: Relation) -> tuple[Scan, dict[Ref, Expr]]:
        """The rows of a join, kept as they are, and what its columns are there."""
        columns = [Column(f"c{n}", _UNTOLD) for n in range(len(relation.columns))]
        block = self.placed(relation, lambda flats: _plain(relation, flats, columns, self.server))
        rows = Scan(self._declared(replace(block, kept=Kept("bag"))), f"rows_{len(self.blocks)}")
        return rows, dict(zip(relation.columns, (Expr(ref.sql) for ref in rows.columns), strict=True))

    def _joined(self, join: Join) -> Join:
        """A union on the side that is asked whether there is anything is kept first."""
        right = self._one_branch(join.right) if join.kind != "inner" else join.right
        left = self._one_branch(join.left) if join.kind == "full" else join.left
        return replace(join, left=left, right=right)

    def _one_branch(self, relation: Relation) -> Relation:
        aliases = {ref.alias for ref in relation.columns}
        if len(flatten(relation)) == 1 or len(aliases) > 1:
            return relation
        rows, over = self._rows(relation)
        return Project(rows, tuple(Named(ref.column, expr) for ref, expr in over.items()), aliases.pop())

    def placed(self, relation: Relation, make: Callable[[Sequence[Flat]], Block]) -> Block:
        """A block over the branches of a relation.

        What Spark cannot evaluate across tables becomes a filter over the rows of the join, which are kept first.
        """
        flats = flatten(relation)
        try:
            return make(flats)
        except Unsupported:
            settled = [self._settled(flat) for flat in flats]
            if settled == flats:
                raise
            return make(settled)

    def _settled(self, flat: Flat) -> Flat:
        region = flat.region
        plan = BranchPlan(flat, 0, [], self.server)
        odd = tuple(one for one in region.conditions if not plan.placeable(one))
        if not odd:
            return flat
        plain = Flat(Region(region.members, tuple(one for one in region.conditions if one not in odd)), flat.outputs)
        needed = list(dict.fromkeys(ref for expr in (*odd, *flat.outputs.values()) for ref in sorted(expr.refs)))
        columns = [Column(f"c{n}", _UNTOLD) for n in range(len(needed))]
        block = _one_branch(plain, [Expr(ref.sql) for ref in needed], columns, self.server)
        if any(not edge.pairs for edge in block.branches[0].edges):
            # All pairs of rows would be kept.
            return flat
        rows = Scan(self._declared(replace(block, kept=Kept("bag"))), f"rows_{len(self.blocks)}")
        over = {ref: Expr(new.sql) for ref, new in zip(needed, rows.columns, strict=True)}
        outputs = {ref: expr.substitute(over) for ref, expr in flat.outputs.items()}
        return Flat(Region((rows,), tuple(one.substitute(over) for one in odd)), outputs)

    def grouped(self, peeled: _Peeled, aggregate: Aggregate, columns: Sequence[Column]) -> Block:
        """An aggregate; where Spark cannot compute its keys, over the rows of its input, kept first."""
        try:
            return self._grouped(peeled, aggregate, columns)
        except Unsupported:
            if _is_one_table(aggregate.input):
                raise
            rows, over = self._rows(aggregate.input)
            named = tuple(Named(key.name, key.expr.substitute(over)) for key in aggregate.keys)
            calls = tuple(Measure(one.name, one.call.substitute(over)) for one in aggregate.measures)
            return self._grouped(peeled, Aggregate(rows, named, calls, aggregate.alias), columns)

    def _grouped(self, peeled: _Peeled, aggregate: Aggregate, columns: Sequence[Column]) -> Block:
        return self.placed(aggregate.input, lambda flats: _grouped(peeled, aggregate, flats, columns, self.server))

    def _windowed(self, window: Window) -> Block:
        try:
            return self.placed(window.input, lambda flats: _windowed(window, flats, self.server))
        except Unsupported:
            if _is_one_table(window.input):
                raise
            rows, over = self._rows(window.input)
            calls = tuple(Named(call.name, call.expr.substitute(over)) for call in window.calls)
            kept = Window(rows, tuple(key.substitute(over) for key in window.keys), calls, window.alias)
            return self.placed(rows, lambda flats: _windowed(kept, flats, self.server))

    def _table(self, stateful: Aggregate | Window | Limit) -> Table:
        """The rows of a stateful operator as a table, kept by a block."""
        meaning = canonical(stateful)
        if meaning not in self._tables:
            self._tables[meaning] = self._kept(stateful)
        return self._tables[meaning]

    def _kept(self, stateful: Aggregate | Window | Limit) -> Table:
        if isinstance(stateful, Window):
            return self._declared(self._windowed(stateful))
        if isinstance(stateful, Limit):
            return self._declared(_limited(stateful, self.server))
        columns = [Column(ref.column, _UNTOLD) for ref in stateful.columns]
        table = self._declared(self.grouped(_peel(stateful), stateful, columns))
        return replace(table, key=tuple(key.name for key in stateful.keys), single=not stateful.keys)

    def _declared(self, block: Block) -> Table:
        """Add a block to the chain; the server tells what its columns are."""
        position = len(self.blocks)
        block = replace(block, name=f"block {position}", position=position)
        table = self.server.declare(block)
        told = tuple(Output(column, o.expr) for column, o in zip(table.columns, block.outputs, strict=True))
        self.blocks.append(replace(block, outputs=told))
        return table


# -- rows that are kept as they are ----------------------------------------------------------


def _is_one_table(relation: Relation) -> bool:
    flats = flatten(relation)
    return len(flats) == 1 and len(flats[0].region.members) == 1 and isinstance(flats[0].region.members[0], Scan)


def _windowed(window: Window, flats: Sequence[Flat], server: Server) -> Block:
    """The rows of a window: PostgreSQL computes them over all rows of a partition."""
    exprs = [*(Expr(ref.sql) for ref in window.input.columns), *(call.expr for call in window.calls)]
    keys = tuple(Named(f"k{number}", key) for number, key in enumerate(window.keys))
    every = Expr.parse(f"ROW({', '.join(expr.sql for expr in exprs)})")
    rows = Aggregate(window.input, keys, (Measure("rows", Call("", None, None, every)),), window.alias)
    alone, plans, first = len(flats) == 1, list[_GroupedBranch](), 0
    for flat in flats:
        plans.append(_GroupedBranch(flat, first, rows, [()], server, alone=alone))
        first += len(plans[-1].branch.inputs)
    agreed = _agreed([plan.named for plan in plans])
    body = {name: BlockColumn(name, one.type or measures.NUMERIC, one.wire) for name, one in agreed}
    members = tuple(column for name, column in body.items() if name in plans[0].members)
    texts = [flats[0].over(expr) if alone else expr for expr in exprs]
    outputs = tuple(
        Output(Column(name, _UNTOLD), f"({_written(text, plans[0].final)})")
        for name, text in zip(window.names, texts, strict=True)
    )
    head = AggregateHead(
        tuple(body[key.name] for key in keys), tuple(measures.State().accumulators.values()), (), members, whole=True
    )
    branches = tuple(plan.branch for plan in plans)
    return Block("window", branches, tuple(body.values()), head, outputs, None, Key("row_id"), kept=Kept("window"))


def _limited(limit: Limit, server: Server) -> Block:
    """The first rows of one table or block: PostgreSQL reads them in order, by an index where there is one."""
    flat = flatten(limit.input)[0]
    wanted = [flat.outputs[ref] for ref in limit.input.columns]
    order = [Order(flat.over(one.expr), one.how) for one in limit.order]
    plan = BranchPlan(flat, 0, [*wanted, *(one.expr for one in order)], server)
    named = [(f"x{n}", plan.placer.leaf(_plainly(expr), "carry")) for n, expr in enumerate(wanted)]
    for one in order:
        plan.placer.leaf(_plainly(one.expr), "carry")
    # Ties are told apart by all columns; what has no order, by its text.
    ties = [
        f"({expr.sql}){'' if placed.type and placed.type.comparable else '::text'}"
        for expr, (_, placed) in zip(wanted, named, strict=True)
    ]
    sorted_by = [one.sql for one in order] + ([] if "TIES" in limit.limit else ties)
    tail = f"ORDER BY {', '.join(sorted_by)} {limit.limit}"
    outputs = tuple(Output(Column(f"c{n}", _UNTOLD), f"({expr.sql})") for n, expr in enumerate(wanted))
    columns = tuple(BlockColumn(name, one.type or measures.NUMERIC, one.wire) for name, one in named)
    kept = Kept("limit", tail, tuple(one.sql for one in order))
    return Block("limit", (plan.finish(named),), columns, None, outputs, None, Key("row_id"), kept=kept)


# -- without a head --------------------------------------------------------------------------


def _plain(relation: Relation, flats: Sequence[Flat], columns: Sequence[Column], server: Server) -> Block:
    if len(flats) == 1:
        return _one_branch(flats[0], [flats[0].outputs[ref] for ref in relation.columns], columns, server)
    branches, placed, first = list[Branch](), list[list[tuple[str, Placed]]](), 0
    for flat in flats:
        wanted = [flat.outputs[ref] for ref in relation.columns]
        plan = BranchPlan(flat, first, wanted, server, alone=False)
        named = [(f"x{n}", plan.placer.place(expr, "carry")) for n, expr in enumerate(wanted)]
        branches.append(plan.finish(named))
        placed.append(named)
        first += len(plan.atoms.scans)
    body = _columns_of(placed, columns)
    outputs = tuple(Output(c, f"d.{quoted(b.name)}") for c, b in zip(columns, body, strict=True))
    return Block("result", tuple(branches), body, None, outputs, None, Key("row_id"))


def _one_branch(flat: Flat, wanted: Sequence[Expr], columns: Sequence[Column], server: Server) -> Block:
    """Final expressions are PostgreSQL's, over the columns that Spark carries."""
    plan = BranchPlan(flat, 0, wanted, server)
    over = [plan.placer.over_columns(expr) for expr in wanted]
    body, final = dict[Expr, tuple[BlockColumn, Placed]](), dict[Ref, Expr]()
    for _, carried in over:
        for ref, placed in carried.items():
            column = BlockColumn(f"x{len(body)}", placed.type or measures.NUMERIC, placed.wire)
            name = body.setdefault(placed.expr, (column, placed))[0].name
            final[ref] = Expr(f"d.{quoted(name)}")
    branch = plan.finish([(column.name, placed) for column, placed in body.values()])
    outputs = tuple(
        Output(c, f"({_written(expr, final)}){_cast(c)}") for c, (expr, _) in zip(columns, over, strict=True)
    )
    key = keys.key_of_region(flat.region, {c.name: e for c, e in zip(columns, wanted, strict=True)})
    return Block("result", (branch,), tuple(column for column, _ in body.values()), None, outputs, None, key)


def _cast(column: Column) -> str:
    return "" if column.type is _UNTOLD else f"::{column.type.name}"


# A string, or a column with or without its alias.
_WORD = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"(?:\."(?:[^"]|"")*")?""")


def _written(expr: Expr, final: Mapping[Ref, Expr]) -> str:
    """The expression with its columns written as PostgreSQL finds them; as text, since some are long."""
    texts = {ref.sql: found.sql for ref, found in final.items()}
    return _WORD.sub(lambda word: texts.get(word[0], word[0]), expr.sql)


def _columns_of(placed: list[list[tuple[str, Placed]]], columns: Sequence[Column]) -> tuple[BlockColumn, ...]:
    """The body's columns, if all branches agree on how each travels."""
    made = []
    for position, column in enumerate(columns):
        # Nothing is ordered here: texts of different collations travel the same way.
        wires = {replace(branch[position][1].wire, ordered=False) for branch in placed}
        if len(wires) > 1:
            raise Unsupported.construct(
                f'column "{column.name}" of a UNION ALL',
                reason="Its parts travel to Spark in different ways.",
                way_round="Cast it to one type in each part.",
            )
        name, one = placed[0][position]
        type_ = (one.type or measures.NUMERIC) if column.type is _UNTOLD else column.type
        made.append(BlockColumn(name, type_, wires.pop()))
    return tuple(made)


# -- with an aggregate -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Peeled:
    """What stands above the topmost aggregate, in terms of its columns."""

    aggregate: Aggregate | None
    outputs: tuple[Named, ...] = ()
    conditions: tuple[Expr, ...] = ()


def _peel(relation: Relation) -> _Peeled:
    if isinstance(relation, Aggregate):
        named = tuple(Named(ref.column, Expr(ref.sql)) for ref in relation.columns)
        return _Peeled(relation, named)
    if isinstance(relation, Filter | Project):
        below = _peel(relation.input)
        if below.aggregate is None:
            return below
        final = {ref: named.expr for ref, named in zip(relation.input.columns, below.outputs, strict=True)}
        if isinstance(relation, Filter):
            own = tuple(conjuncts(relation.predicate.substitute(final)))
            return _Peeled(below.aggregate, below.outputs, below.conditions + own)
        outputs = tuple(Named(o.name, o.expr.substitute(final)) for o in relation.outputs)
        return _Peeled(below.aggregate, outputs, below.conditions)
    return _Peeled(None)


class _NotKept(Exception):
    """A measure that Spark cannot keep, by its number: PostgreSQL shall compute it over the rows of a group."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _grouped(
    peeled: _Peeled, aggregate: Aggregate, flats: Sequence[Flat], columns: Sequence[Column], server: Server
) -> Block:
    while True:
        try:
            return _with_groups(peeled, aggregate, flats, columns, server)
        except _NotKept as one:
            number = one.number
            measure = replace(aggregate.measures[number], call=measures.gathered(aggregate.measures[number].call))
            listed = (*aggregate.measures[:number], measure, *aggregate.measures[number + 1 :])
            aggregate = replace(aggregate, measures=listed)


def _with_groups(
    peeled: _Peeled, aggregate: Aggregate, flats: Sequence[Flat], columns: Sequence[Column], server: Server
) -> Block:
    needs = [measures.arguments(measure.call) for measure in aggregate.measures]
    plans, first = list[_GroupedBranch](), 0
    for flat in flats:
        plans.append(_GroupedBranch(flat, first, aggregate, needs, server, alone=len(flats) == 1))
        first += len(plans[-1].branch.inputs)
    agreed = _agreed([plan.named for plan in plans])
    by_name = dict(agreed)
    state, reads = measures.State(), dict[Ref, Expr]()
    for number, measure in enumerate(aggregate.measures):
        reads[Ref(aggregate.alias, measure.name)] = Expr(f"({_read(number, measure, needs, by_name, state, plans[0])})")
    key_columns = tuple(
        BlockColumn(key.name, _typed(by_name[key.name], key), by_name[key.name].wire) for key in aggregate.keys
    )
    reads |= {Ref(aggregate.alias, key.name): Expr(f"s.{quoted(key.name)}") for key in aggregate.keys}
    body = tuple(BlockColumn(name, one.type or measures.NUMERIC, one.wire) for name, one in agreed)
    outputs = tuple(
        Output(c, f"({_written(named.expr, reads)}){_cast(c)}")
        for c, named in zip(columns, peeled.outputs, strict=True)
    )
    having = " AND ".join(f"({_written(condition, reads)})" for condition in peeled.conditions) or None
    members = tuple(column for column in body if column.name in plans[0].members)
    head = AggregateHead(key_columns, tuple(state.accumulators.values()), tuple(state.gathered), members)
    key = _group_key(peeled, aggregate, key_columns, columns)
    return Block("result", tuple(plan.branch for plan in plans), body, head, outputs, having, key)


def _read(
    number: int,
    measure: Measure,
    needs: Sequence[tuple[measures.Argument, ...]],
    by_name: Mapping[str, Placed],
    state: measures.State,
    plan: _GroupedBranch,
) -> str:
    """How a measure is read off the state."""
    if measure.call.text is not None:
        return state.gather(_written(plan.texts[number], plan.final))
    # Measures of the same argument share its columns.
    shared = needs.index(needs[number])
    own = tuple((name, by_name[name]) for name in (f"a{shared}", f"a{shared}o", f"a{shared}s") if name in by_name)
    try:
        return state.read(measure.call, own)
    except Unsupported as error:
        raise _NotKept(number) from error


class _GroupedBranch:
    """One branch below an aggregate: its keys, the arguments of what is kept, the columns of what is gathered."""

    def __init__(
        self,
        flat: Flat,
        first: int,
        aggregate: Aggregate,
        needs: Sequence[tuple[measures.Argument, ...]],
        server: Server,
        *,
        alone: bool,
    ) -> None:
        keys = [_plainly(flat.over(key.expr)) for key in aggregate.keys]
        arguments = [[measures.Argument(_plainly(flat.over(a.expr)), a.use) for a in need] for need in needs]
        gathered = {n: one.call.text for n, one in enumerate(aggregate.measures) if one.call.text is not None}
        # Of one branch, columns are gathered as its tables have them; of several, as the aggregate's input does.
        self.texts = {n: flat.over(text) if alone else text for n, text in gathered.items()}
        refs = list(dict.fromkeys(ref for text in self.texts.values() for ref in sorted(text.refs)))
        carried = {ref: Expr(ref.sql) if alone else _plainly(flat.outputs[ref]) for ref in refs}
        wanted = [*keys, *(a.expr for need in arguments for a in need), *carried.values()]
        self.plan = BranchPlan(flat, first, wanted, server, alone=alone)
        self.named = [(key.name, _key(self.plan.placer, expr)) for key, expr in zip(aggregate.keys, keys, strict=True)]
        for number, need in enumerate(arguments):
            for argument in need if needs.index(needs[number]) == number else ():
                self._place(number, argument, aggregate.measures[number].call.function)
        self.final, self.members = dict[Ref, Expr](), set[str]()
        for number, (ref, expr) in enumerate(carried.items()):
            self.named.append((f"g{number}", self.plan.placer.place(expr, "carry")))
            self.final[ref] = Expr(f"r.{quoted(f'g{number}')}")
            self.members.add(f"g{number}")
        self.branch = self.plan.finish(self.named)

    def _place(self, number: int, argument: measures.Argument, function: str) -> None:
        placer = self.plan.placer
        try:
            placed = placer.place(argument.expr, argument.use)
        except Unsupported as error:
            raise _NotKept(number) from error
        if argument.use == "number" and placed.type is not None and placed.type.base == "float4":
            # PostgreSQL adds them as they are; Spark would add them as doubles.
            raise _NotKept(number)
        self.named.append((f"a{number}", placed))
        if argument.use == "number" and (scale := placer.scale(argument.expr, placed)):
            self.named.append((f"a{number}s", scale))
        type_ = placer.types.get(argument.expr)
        if argument.use == "carry" and type_ is not None and measures.order_use(type_):
            self.named.append((f"a{number}o", placer.place(argument.expr, "number")))


def _plainly(expression: Expr) -> Expr:
    return Expr.of(unwrapped(expression.node))


def _key(placer: Placer, expression: Expr) -> Placed:
    placed = placer.place(expression, "key")
    if not placed.wire.equal:
        raise Unsupported.construct(
            f"grouping by {expression}",
            reason="Spark's equality of its type is not PostgreSQL's.",
            way_round="Group by its text, or by an expression of a plainer type.",
        )
    return placed


def _typed(placed: Placed, key: Named) -> PgType:
    if placed.type is None:
        raise Unsupported.construct(
            f"grouping by {key.expr}",
            reason="Its type is not known exactly.",
            way_round="Group by one table's columns.",
        )
    return placed.type


def _agreed(placed: list[list[tuple[str, Placed]]]) -> list[tuple[str, Placed]]:
    travelling = [[(name, one.wire) for name, one in branch] for branch in placed]
    if any(branch != travelling[0] for branch in travelling):
        raise Unsupported.construct(
            "an aggregate over a UNION ALL whose parts travel in different ways",
            reason="One column has different types in its parts.",
            way_round="Cast it to one type in each part.",
        )
    return placed[0]


def _group_key(
    peeled: _Peeled, aggregate: Aggregate, key_columns: Sequence[BlockColumn], columns: Sequence[Column]
) -> Key:
    shown = dict[str, str]()
    for column, named in zip(columns, peeled.outputs, strict=True):
        ref = named.expr.as_ref
        if ref is not None and ref.alias == aggregate.alias:
            shown.setdefault(ref.column, column.name)
    return keys.key_of_groups(shown, tuple(Column(key.name, key.type) for key in key_columns))
