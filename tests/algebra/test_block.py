"""Blocks describe a plan: edges of a join tree, the state of a group, keys, and their printed form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.algebra.block import (
    Accumulator,
    AggregateHead,
    BagBlock,
    Branch,
    Edge,
    HolisticAggregate,
    Input,
    Key,
    Leaf,
    LimitBlock,
    Match,
    Pair,
    PartitionHead,
    Read,
    RecursionBlock,
    RecursionTerm,
    StatelessBlock,
    wire_for,
)
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import JoinKind, Scan
from millstream.algebra.table import Clock
from millstream.algebra.temporal_filter import TemporalFilter
from millstream.algebra.types import Column
from millstream.algebra.wire import wire_of
from millstream.testing.planning_server import pg_type, table

INT8 = pg_type("int8")
ORDERS = Scan(table("orders", "id int8, customer int8, placed timestamptz", key="id"), "o")


def make_input(name: str) -> Input:
    return Input(name, ORDERS, (Leaf("c0", Expr.ref("o", "id"), INT8, "carry", wire_of(INT8)),), ())


def test_an_input_needs_the_columns_of_its_leaves_and_filters() -> None:
    clock = Scan(Clock((Column("now", pg_type("timestamptz")),)), "n")
    recent = TemporalFilter(Expr.parse('"o"."placed" > "n"."now"'), (clock,))
    read = replace(
        make_input("i0"), filters=(Expr.parse('"o"."customer" > 1'),), temporal_filters=(recent,)
    )
    assert make_input("i0").used() == {"id"}
    assert read.used() == {"id", "customer", "placed"}


def test_an_input_prints_its_filters_in_the_order_of_their_evaluation() -> None:
    clock = Scan(Clock((Column("now", pg_type("timestamptz")),)), "n")
    recent = TemporalFilter(Expr.parse('"o"."placed" > "n"."now"'), (clock,))
    read = replace(
        make_input("i0"), filters=(Expr.parse('"o"."customer" > 1'),), temporal_filters=(recent,)
    )
    assert str(read) == (
        'i0  public.orders AS o: c0 = "o"."id" WHERE ("o"."customer" > 1)'
        ' TEMPORAL FILTER ("o"."placed" > "n"."now") by the clock AS n'
    )


def test_a_swapped_pair_is_the_same_equality_of_nulls() -> None:
    pair = Pair(Ref("i0", "c0"), Ref("i1", "c1"), nulls=True)
    assert pair.swap().condition.sql == '"i1"."c1" IS NOT DISTINCT FROM "i0"."c0"'
    assert pair.swap().swap() == pair


def test_the_conditions_of_a_join_are_its_equalities_and_the_residual() -> None:
    reads = Read(make_input("i0")), Read(make_input("i1"))
    pair = Pair(Ref("i0", "c0"), Ref("i1", "c0"))
    joined = Match("inner", *reads, (pair,), (Expr.parse('"i0"."c0" > 3'),))
    assert [str(condition) for condition in joined.conditions] == [
        '"i0"."c0" = "i1"."c0"',
        '"i0"."c0" > 3',
    ]
    assert Match("inner", *reads, ()).headline() == "Join  (all pairs)"


@pytest.mark.parametrize(
    ("kind", "needed", "left", "right"),
    [
        ("inner", False, True, True),
        ("left", False, False, True),
        ("full", False, False, False),
        ("mark", False, False, True),
        ("mark", True, True, True),
    ],
)
def test_a_row_without_a_match_is_left_out_where_the_join_discards_it(
    kind: JoinKind, needed: bool, left: bool, right: bool
) -> None:
    edge = Edge("i0", "i1", (("c0", "c1"),), kind, needed=needed)
    assert (edge.reduces("i0"), edge.reduces("i1")) == (left, right)


def test_without_equalities_no_row_is_left_out() -> None:
    assert not Edge("i0", "i1").reduces("i0")


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [("inner", False, False), ("left", True, False), ("mark", True, False), ("full", True, True)],
)
def test_the_side_whose_matches_are_counted_must_be_complete(
    kind: JoinKind, left: bool, right: bool
) -> None:
    edge = Edge("i0", "i1", (("c0", "c1"),), kind)
    assert (edge.complete("i0"), edge.complete("i1")) == (left, right)


def test_an_edge_is_seen_from_either_end_and_from_nowhere_else() -> None:
    edge = Edge("i0", "i1", (("a", "b"), ("c", "d")), nulls=(1,))
    assert edge.ends("i0") == ("i1", ("a", "c"), ("b", "d"))
    assert edge.ends("i1") == ("i0", ("b", "d"), ("a", "c"))
    assert edge.ends("i2") is None
    assert str(edge) == "i0.a = i1.b and i0.c <=> i1.d"


def test_the_edges_of_a_branch_are_a_spanning_tree() -> None:
    inputs = make_input("i0"), make_input("i1")
    with pytest.raises(ValueError, match="spanning tree"):
        Branch(inputs, (), Read(inputs[0]), ())


def test_only_sums_need_no_consolidated_changes() -> None:
    total = Accumulator("t0", "total", "sum", "a0", INT8)
    best = Accumulator("x0", "max", "extreme", "a0", INT8)
    assert not AggregateHead((), (total,)).consolidated
    assert AggregateHead((), (total, best)).consolidated
    assert AggregateHead((), (total,), (HolisticAggregate("v0", "array_agg(r.g0)"),)).consolidated
    assert PartitionHead((), (total,)).consolidated


def test_spark_returns_the_best_value_that_came_and_the_best_that_went() -> None:
    total = Accumulator("t0", "total", "sum", "a0", INT8)
    best = Accumulator("x1", "max", "extreme", "a0", INT8)
    assert [name for _, name in AggregateHead((), (total, best)).state_columns] == [
        "t0",
        "x1_in",
        "x1_out",
    ]


def test_a_key_has_columns_exactly_if_its_kind_is_columns() -> None:
    assert str(Key("columns", ("a", "b"))) == "key (a, b)"
    with pytest.raises(ValueError, match="kind"):
        Key("columns")
    with pytest.raises(ValueError, match="kind"):
        Key("row_id", ("a",))


def branch(inputs: int) -> Branch:
    listed = tuple(
        Input(f"i{n}", Scan(table("t", "a int4"), f"t{n}"), (), ()) for n in range(inputs)
    )
    edges = tuple(Edge("i0", one.name) for one in listed[1:])
    return Branch(listed, edges, Read(listed[0]), ())


def test_blocks_print_what_their_kind_adds() -> None:
    stateless = StatelessBlock("block 0", (branch(2),), (), (), Key("row_id"))
    limit = LimitBlock("block 0", (branch(1),), (), (), Key("row_id"), tail="ORDER BY a LIMIT 1")
    assert "materialized" not in str(stateless)
    assert "  materialized as bag" in str(BagBlock.of(stateless)).splitlines()
    assert "  materialized as limit ORDER BY a LIMIT 1" in str(limit).splitlines()


def test_a_limit_of_two_inputs_is_an_error() -> None:
    with pytest.raises(ValueError, match="one input"):
        LimitBlock("block 0", (branch(2),), (), (), Key("row_id"), tail="LIMIT 1")


def test_a_recursion_has_the_branches_of_its_terms() -> None:
    term = RecursionTerm(StatelessBlock("base", (branch(1),), (), (), Key("row_id")), None)
    parts = (term.block.branches, (), (), Key("row_id"))
    recursion = RecursionBlock("block 0", *parts, each_once=True, text="SELECT 1", terms=(term,))
    assert recursion.kind == "set"
    assert replace(recursion, each_once=False).kind == "levels"
    with pytest.raises(ValueError, match="those of its terms"):
        replace(recursion, terms=())


def test_spark_has_no_number_for_a_text() -> None:
    assert wire_for(pg_type("text"), "number") is None
    assert wire_for(pg_type("text"), "carry") is not None
