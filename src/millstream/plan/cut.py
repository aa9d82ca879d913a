"""Cut a query's Relation into blocks; so far, one.

What stands above the aggregate becomes outputs and HAVING, computed by PostgreSQL while applying;
what stands below it is flattened into branches, and every expression is placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, conjuncts, unwrapped
from millstream.algebra.relation import Aggregate, Filter, Join, Named, Project, Relation
from millstream.algebra.table import quoted
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import wire_of
from millstream.errors import Unsupported
from millstream.plan import keys, measures
from millstream.plan.block import AggregateHead, Block, BlockColumn, Branch, Edge, Key, Output, Read
from millstream.plan.flatten import Flat, flatten
from millstream.plan.place import Placed, Placer, Typist, leaf_ref
from millstream.plan.tree import Pair, spanning_tree


def cut(relation: Relation, columns: Sequence[Column], typist: Typist) -> tuple[Block, ...]:
    """The blocks of a query, innermost first; the last one's outputs are the stream table."""
    peeled = _peel(relation)
    if peeled.aggregate is None:
        return (_plain(relation, columns, typist),)
    return (_grouped(peeled, peeled.aggregate, columns, typist),)


# -- one branch ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Conditions:
    """The conjuncts of a branch, by where they are evaluated."""

    leaf: tuple[Expr, ...]
    equal: tuple[tuple[Expr, Expr], ...]
    across: tuple[Expr, ...]


def _sorted(flat: Flat) -> _Conditions:
    leaf, equal, across = list[Expr](), list[tuple[Expr, Expr]](), list[Expr]()
    for condition in flat.conditions:
        sides = _sides(condition)
        if len(condition.aliases) <= 1:
            leaf.append(condition)
        elif sides:
            equal.append(sides)
        else:
            across.append(condition)
    return _Conditions(tuple(leaf), tuple(equal), tuple(across))


def _sides(condition: Expr) -> tuple[Expr, Expr] | None:
    """Both sides of an equality of two tables."""
    node = unwrapped(condition.node)
    if not isinstance(node, exp.EQ):
        return None
    one, other = Expr.of(unwrapped(node.this)), Expr.of(unwrapped(node.expression))
    tied = len(one.aliases) == 1 and len(other.aliases) == 1 and one.aliases != other.aliases
    return (one, other) if tied else None


class _BranchPlan:
    """One branch under construction."""

    def __init__(self, flat: Flat, first: int, wanted: Sequence[Expr], typist: Typist, *, alone: bool = True) -> None:
        self.conditions = _sorted(flat)
        sides = [side for pair in self.conditions.equal for side in pair]
        self.placer = Placer(flat.scans, first, [*wanted, *self.conditions.across, *sides], typist, sharpen=alone)
        self.flat = flat

    def finish(self, outputs: Sequence[tuple[str, Placed]]) -> Branch:
        pairs, rest = self._pairs()
        filters = [self.placer.place(one, "carry").expr for one in (*self.conditions.across, *rest)]
        inputs = self.placer.inputs(self.conditions.leaf)
        edges = spanning_tree([one.name for one in inputs], pairs)
        body = _joined({one.name: Read(one) for one in inputs}, edges, pairs)
        for predicate in filters:
            body = Filter(body, predicate)
        named = tuple(Named(name, placed.expr) for name, placed in outputs)
        sources = tuple((name, leaf_ref(placed)) for name, placed in outputs)
        return Branch(inputs, tuple(edges), Project(body, named, "b"), sources)

    def _pairs(self) -> tuple[list[Pair], list[Expr]]:
        """Equalities Spark can join by, and those that must be filters (or be refused there)."""
        pairs, rest = list[Pair](), list[Expr]()
        for one, other in self.conditions.equal:
            left, right = self.placer.types[one], self.placer.types[other]
            if _joinable(left.base, right.base) and wire_of(left).equal and wire_of(right).equal:
                pairs.append((self._end(one), self._end(other)))
            else:
                rest.append(Expr.of(exp.EQ(this=exp.Paren(this=one.node), expression=exp.Paren(this=other.node))))
        return pairs, rest

    def _end(self, side: Expr) -> tuple[str, str]:
        ref = leaf_ref(self.placer.leaf(side, "key"))
        assert ref is not None
        return ref.alias, ref.column


def _joinable(one: str, other: str) -> bool:
    families = ({"int2", "int4", "int8"}, {"text", "varchar"})
    return one == other or any({one, other} <= family for family in families)


def _joined(reads: dict[str, Read], edges: list[Edge], pairs: list[Pair]) -> Relation:
    names = list(reads)
    relation: Relation = reads[names[0]]
    known = {names[0]}
    for edge in edges:
        known.add(edge.right)
        ready = [pair for pair in pairs if edge.right in (pair[0][0], pair[1][0]) and {pair[0][0], pair[1][0]} <= known]
        condition = " AND ".join(f"{Ref(*one).sql} = {Ref(*other).sql}" for one, other in ready)
        relation = Join(relation, reads[edge.right], Expr(condition) if condition else None)
    return relation


# -- without a head --------------------------------------------------------------------------


def _plain(relation: Relation, columns: Sequence[Column], typist: Typist) -> Block:
    flats = flatten(relation)
    if len(flats) == 1:
        return _one_branch(relation, flats[0], columns, typist)
    branches, placed, first = list[Branch](), list[list[tuple[str, Placed]]](), 0
    for flat in flats:
        wanted = [flat.outputs[ref] for ref in relation.columns]
        plan = _BranchPlan(flat, first, wanted, typist, alone=False)
        named = [(f"x{n}", plan.placer.place(expr, "carry")) for n, expr in enumerate(wanted)]
        branches.append(plan.finish(named))
        placed.append(named)
        first += len(flat.scans)
    body = _columns_of(placed, columns)
    outputs = tuple(Output(c, f"d.{quoted(b.name)}") for c, b in zip(columns, body, strict=True))
    return Block("result", tuple(branches), body, None, outputs, None, Key("row_id"))


def _one_branch(relation: Relation, flat: Flat, columns: Sequence[Column], typist: Typist) -> Block:
    """Final expressions are PostgreSQL's, over the leaf columns that Spark carries."""
    wanted = [flat.outputs[ref] for ref in relation.columns]
    plan = _BranchPlan(flat, 0, wanted, typist)
    over = [plan.placer.over_columns(expr) for expr in wanted]
    carried = dict.fromkeys(ref for expr in over for ref in sorted(expr.refs))
    leaves = {
        Ref(plan.placer.names[alias], leaf.name): leaf
        for alias, own in plan.placer.leaves.items()
        for leaf in own.values()
    }
    body = {ref: BlockColumn(f"x{n}", leaves[ref].type, leaves[ref].wire) for n, ref in enumerate(carried)}
    branch = plan.finish([(body[ref].name, Placed(Expr(ref.sql), body[ref].wire, body[ref].type)) for ref in body])
    final = {ref: Expr(f"d.{quoted(column.name)}") for ref, column in body.items()}
    outputs = tuple(
        Output(c, f"({_written(expr, final)})::{c.type.name}") for c, expr in zip(columns, over, strict=True)
    )
    equalities = [(a, b) for one, other in plan.conditions.equal if (a := one.as_ref) and (b := other.as_ref)]
    key = keys.key_of_join(flat.scans, equalities, {c.name: e for c, e in zip(columns, wanted, strict=True)})
    return Block("result", (branch,), tuple(body.values()), None, outputs, None, key)


def _written(expr: Expr, final: dict[Ref, Expr]) -> str:
    """The expression with columns of Spark's written as PostgreSQL finds them; as text, since some are long."""
    text = expr.sql
    for ref, decoded in final.items():
        text = text.replace(ref.sql, decoded.sql)
    return text


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


def _grouped(peeled: _Peeled, aggregate: Aggregate, columns: Sequence[Column], typist: Typist) -> Block:
    flats = flatten(aggregate.input)
    needs = [measures.arguments(measure.call) for measure in aggregate.measures]
    branches, placed, first = list[Branch](), list[list[tuple[str, Placed]]](), 0
    for flat in flats:
        branch, named = _grouped_branch(flat, first, aggregate, needs, typist, alone=len(flats) == 1)
        branches.append(branch)
        placed.append(named)
        first += len(flat.scans)
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
        Output(c, f"({_written(named.expr, reads)})::{c.type.name}")
        for c, named in zip(columns, peeled.outputs, strict=True)
    )
    having = " AND ".join(f"({_written(condition, reads)})" for condition in peeled.conditions) or None
    head = AggregateHead(key_columns, tuple(state.accumulators.values()))
    return Block(
        "result", tuple(branches), body, head, outputs, having, _group_key(peeled, aggregate, key_columns, columns)
    )


def _grouped_branch(
    flat: Flat,
    first: int,
    aggregate: Aggregate,
    needs: Sequence[tuple[measures.Argument, ...]],
    typist: Typist,
    *,
    alone: bool,
) -> tuple[Branch, list[tuple[str, Placed]]]:
    key_exprs = [Expr.of(unwrapped(flat.over(key.expr).node)) for key in aggregate.keys]
    arguments = [[measures.Argument(_plainly(flat.over(a.expr)), a.use) for a in need] for need in needs]
    plan = _BranchPlan(flat, first, [*key_exprs, *(a.expr for need in arguments for a in need)], typist, alone=alone)
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
