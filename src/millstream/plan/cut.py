"""Cut a query's Relation into blocks, innermost first.

Each stateful operator below the top becomes a block of its own, and what stands above reads that block like a
table; two that mean the same are one block. What stands above the topmost aggregate becomes outputs and HAVING,
computed by PostgreSQL while applying; what stands below it is flattened into branches, and every expression is placed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.algebra.expr import Expr, Ref, conjuncts, unwrapped
from millstream.algebra.relation import Aggregate, Filter, Join, Named, Project, Relation, Scan, UnionAll
from millstream.algebra.rename import canonical
from millstream.algebra.table import Table, quoted
from millstream.algebra.types import Column, PgType
from millstream.errors import Unsupported
from millstream.plan import keys, measures
from millstream.plan.block import AggregateHead, Block, BlockColumn, Branch, Key, Output
from millstream.plan.body import BranchPlan
from millstream.plan.flatten import Flat, flatten
from millstream.plan.place import Placed, Placer
from millstream.plan.server import Server

# Until the server has told what an inner block's columns are.
_UNTOLD = PgType(705, "unknown", "unknown", kind="pseudo")


def cut(relation: Relation, columns: Sequence[Column], server: Server) -> tuple[Block, ...]:
    """The blocks of a query, innermost first; the last one's outputs are the stream table."""
    chain = _Chain(server)
    peeled = _peel(relation)
    if peeled.aggregate is None:
        last = _plain(chain.cleared(relation), columns, server)
    else:
        last = _grouped(peeled, chain.over_tables(peeled.aggregate), columns, server)
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
        if isinstance(relation, Filter | Project):
            return replace(relation, input=self.cleared(relation.input))
        if isinstance(relation, Join):
            return replace(relation, left=self.cleared(relation.left), right=self.cleared(relation.right))
        if isinstance(relation, UnionAll):
            return replace(relation, parts=tuple(map(self.cleared, relation.parts)))
        return relation

    def over_tables(self, aggregate: Aggregate) -> Aggregate:
        return replace(aggregate, input=self.cleared(aggregate.input))

    def _table(self, aggregate: Aggregate) -> Table:
        """The rows of an aggregate as a table, kept by a block."""
        meaning = canonical(aggregate)
        if meaning not in self._tables:
            self._tables[meaning] = self._declared(aggregate)
        return self._tables[meaning]

    def _declared(self, aggregate: Aggregate) -> Table:
        position = len(self.blocks)
        columns = [Column(ref.column, _UNTOLD) for ref in aggregate.columns]
        block = replace(_grouped(_peel(aggregate), aggregate, columns, self.server), position=position)
        table = self.server.declare(block)
        told = tuple(Output(column, o.expr) for column, o in zip(table.columns, block.outputs, strict=True))
        self.blocks.append(replace(block, name=f"block {position}", outputs=told))
        return replace(table, key=tuple(key.name for key in aggregate.keys), single=not aggregate.keys)


# -- without a head --------------------------------------------------------------------------


def _plain(relation: Relation, columns: Sequence[Column], server: Server) -> Block:
    flats = flatten(relation)
    if len(flats) == 1:
        return _one_branch(relation, flats[0], columns, server)
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


def _one_branch(relation: Relation, flat: Flat, columns: Sequence[Column], server: Server) -> Block:
    """Final expressions are PostgreSQL's, over the columns that Spark carries."""
    wanted = [flat.outputs[ref] for ref in relation.columns]
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
        Output(c, f"({_written(expr, final)})::{c.type.name}") for c, (expr, _) in zip(columns, over, strict=True)
    )
    key = keys.key_of_region(flat.region, {c.name: e for c, e in zip(columns, wanted, strict=True)})
    return Block("result", (branch,), tuple(column for column, _ in body.values()), None, outputs, None, key)


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
                way_round=f"Cast it to {column.type.name} in each part.",
            )
        made.append(BlockColumn(placed[0][position][0], column.type, wires.pop()))
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


def _grouped(peeled: _Peeled, aggregate: Aggregate, columns: Sequence[Column], server: Server) -> Block:
    flats = flatten(aggregate.input)
    needs = [measures.arguments(measure.call) for measure in aggregate.measures]
    branches, placed, first = list[Branch](), list[list[tuple[str, Placed]]](), 0
    for flat in flats:
        branch, named = _grouped_branch(flat, first, aggregate, needs, server, alone=len(flats) == 1)
        branches.append(branch)
        placed.append(named)
        first += len(branch.inputs)
    agreed = _agreed(placed)
    state, reads = measures.State(), dict[Ref, Expr]()
    by_name = dict(agreed)
    for need, measure in zip(needs, aggregate.measures, strict=True):
        # Measures of the same argument share its columns.
        number = needs.index(need)
        own = tuple((name, by_name[name]) for name in (f"a{number}", f"a{number}o", f"a{number}s") if name in by_name)
        reads[Ref(aggregate.alias, measure.name)] = Expr(f"({state.read(measure.call, own)})")
    key_columns = tuple(
        BlockColumn(key.name, _typed(by_name[key.name], key), by_name[key.name].wire) for key in aggregate.keys
    )
    reads |= {Ref(aggregate.alias, key.name): Expr(f"s.{quoted(key.name)}") for key in aggregate.keys}
    body = tuple(BlockColumn(name, one.type or measures.NUMERIC, one.wire) for name, one in agreed)
    outputs = tuple(
        Output(c, f"({_written(named.expr, reads)}){'' if c.type is _UNTOLD else f'::{c.type.name}'}")
        for c, named in zip(columns, peeled.outputs, strict=True)
    )
    having = " AND ".join(f"({_written(condition, reads)})" for condition in peeled.conditions) or None
    head = AggregateHead(key_columns, tuple(state.accumulators.values()))
    key = _group_key(peeled, aggregate, key_columns, columns)
    return Block("result", tuple(branches), body, head, outputs, having, key)


def _grouped_branch(
    flat: Flat,
    first: int,
    aggregate: Aggregate,
    needs: Sequence[tuple[measures.Argument, ...]],
    server: Server,
    *,
    alone: bool,
) -> tuple[Branch, list[tuple[str, Placed]]]:
    key_exprs = [Expr.of(unwrapped(flat.over(key.expr).node)) for key in aggregate.keys]
    arguments = [[measures.Argument(_plainly(flat.over(a.expr)), a.use) for a in need] for need in needs]
    plan = BranchPlan(flat, first, [*key_exprs, *(a.expr for need in arguments for a in need)], server, alone=alone)
    named = [(key.name, _key(plan.placer, expr)) for key, expr in zip(aggregate.keys, key_exprs, strict=True)]
    for number, need in enumerate(arguments):
        for argument in need if needs.index(needs[number]) == number else ():
            placed = plan.placer.place(argument.expr, argument.use)
            named.append((f"a{number}", placed))
            if argument.use == "number" and (scale := plan.placer.scale(argument.expr, placed)):
                named.append((f"a{number}s", scale))
            type_ = plan.placer.types.get(argument.expr)
            if argument.use == "carry" and type_ is not None and measures.order_use(type_):
                named.append((f"a{number}o", plan.placer.place(argument.expr, "number")))
    return plan.finish(named), named


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
