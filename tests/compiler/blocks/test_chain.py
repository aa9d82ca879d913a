"""The chain of blocks: which rows are materialized so that PostgreSQL can evaluate what Spark
cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.law.conftest import Law, law

from millstream.algebra.block import BagBlock, Block, PairsBlock
from millstream.algebra.expr import Expr
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Filter,
    Join,
    Measure,
    Named,
    Project,
    Relation,
    Scan,
    UnionAll,
)
from millstream.algebra.types import Column
from millstream.compiler.blocks.chain import Chain, is_one_table
from millstream.compiler.blocks.flatten import FlatBranch
from millstream.compiler.blocks.stateless_block import build_stateless_block
from millstream.compiler.refusal import accepted
from millstream.errors import Unsupported
from millstream.testing.planning_server import PlanningServerDouble, pg_type, single_row, table

__all__ = ["law"]  # a fixture

QUERIES = {
    "of two": "SELECT * FROM (SELECT max(f) AS m FROM t) AS a, (SELECT max(f) AS n FROM t) AS b WHERE a.m + b.n > 1",
    "of three": "SELECT a.m, b.n FROM (SELECT max(f) AS m FROM t) AS a JOIN (SELECT min(f) AS n FROM t) AS b "
    "ON a.m - b.n > 0.5 JOIN (SELECT avg(f) AS o FROM t) AS c ON c.o * a.m > b.n",
}


@pytest.mark.spark
def test_single_rows_are_joined_by_any_condition(law: Law) -> None:
    """Aggregates without GROUP BY, joined by a condition that Spark cannot evaluate, left no table:
    IndexError.
    """
    law.change("""
        CREATE TABLE t (id int PRIMARY KEY, f double precision);
        INSERT INTO t VALUES (1, 0.25), (2, 1.5)
    """)
    law.holds_for(
        QUERIES,
        ["UPDATE t SET f = 0.25 WHERE id = 2", "INSERT INTO t VALUES (3, 8)", "DELETE FROM t"],
    )


# -- without a server --------------------------------------------------------------------------

ORDERS = table("orders", "id int8, customer int4, amount numeric(12,2), note text", key="id")
CUSTOMERS = table("customers", "id int4, region int4, name text", key="id")
JOINED = Join(Scan(ORDERS, "o"), Scan(CUSTOMERS, "c"), Expr.parse('"c"."id" = "o"."customer"'))
BY_PREFIX = 'starts_with("c"."name", "o"."note")'
"""A condition over two tables that Spark cannot evaluate."""


def count_by_region(input_: Relation, alias: str = "g") -> Aggregate:
    return Aggregate(
        input_,
        (Named("k0", Expr.ref("c", "region")),),
        (Measure("m0", Call("count", None)),),
        alias,
    )


def bag_of(chain: Chain, relation: Relation) -> Block:
    """Build the block of a relation's columns."""
    columns = [Column(ref.column, pg_type("text")) for ref in relation.columns]

    def make(flats: Sequence[FlatBranch]) -> Block | Unsupported:
        return build_stateless_block(relation.columns, flats, columns, chain.server)

    return accepted(chain.build_block(relation, relation.columns, make))


def test_a_condition_that_spark_cannot_evaluate_filters_the_materialized_join() -> None:
    chain = Chain(PlanningServerDouble())
    block = bag_of(chain, Filter(JOINED, Expr.parse(BY_PREFIX)))
    (stored,) = chain.blocks
    assert isinstance(stored, BagBlock)
    (read,) = block.inputs()
    assert read.of == "block 0"
    assert [str(condition) for condition in read.filters] == [
        'starts_with("rows_1"."c0", "rows_1"."c1")'
    ]


def test_a_condition_that_spark_can_evaluate_materializes_nothing() -> None:
    chain = Chain(PlanningServerDouble())
    block = bag_of(chain, Filter(JOINED, Expr.parse('"c"."region" > "o"."customer"')))
    assert chain.blocks == []
    assert len(list(block.inputs())) == 2


def test_of_a_cross_product_the_pairs_that_satisfy_the_condition_are_stored() -> None:
    chain = Chain(PlanningServerDouble())
    product = Join(Scan(ORDERS, "o"), Scan(CUSTOMERS, "c"))
    block = bag_of(chain, Filter(product, Expr.parse(BY_PREFIX)))
    (pairs,) = chain.blocks
    assert isinstance(pairs, PairsBlock)
    assert pairs.condition == Expr.parse(BY_PREFIX)
    assert sorted(one.of for one in block.inputs()) == [
        "block 0",
        "public.customers",
        "public.orders",
    ]


def test_equal_aggregates_under_different_aliases_share_a_block() -> None:
    chain = Chain(PlanningServerDouble())
    one = chain.cleared(count_by_region(Scan(CUSTOMERS, "c")))
    other = chain.cleared(replace(count_by_region(Scan(CUSTOMERS, "c")), alias="h"))
    assert isinstance(one, Scan)
    assert isinstance(other, Scan)
    assert one.table == other.table
    assert (one.alias, other.alias) == ("g", "h")
    assert len(chain.blocks) == 1


def test_an_aggregate_without_keys_is_a_table_of_one_row() -> None:
    chain = Chain(PlanningServerDouble())
    everything = Aggregate(Scan(CUSTOMERS, "c"), (), (Measure("m0", Call("count", None)),), "g")
    read = chain.cleared(everything)
    assert isinstance(read, Scan)
    assert read.table.single
    assert read.table.key == ()


def test_a_single_row_is_joined_beside_the_materialized_rows_and_not_stored_with_each() -> None:
    chain = Chain(PlanningServerDouble())
    longest = Scan(single_row("longest", "note text"), "l")
    relation = Filter(
        Join(JOINED, longest), Expr.parse(f'{BY_PREFIX} OR starts_with("c"."name", "l"."note")')
    )
    block = bag_of(chain, relation)
    assert [read.of for read in chain.blocks[0].inputs()] == ["public.orders", "public.customers"]
    assert [
        scan.alias
        for read in block.inputs()
        for filter_ in read.temporal_filters
        for scan in filter_.by
    ] == ["l"]


def test_a_union_below_the_optional_side_of_a_join_is_materialized() -> None:
    chain = Chain(PlanningServerDouble())
    parts = tuple(
        Project(Scan(CUSTOMERS, alias), (Named("id", Expr.ref(alias, "id")),), f"p_{alias}")
        for alias in "ab"
    )
    union = UnionAll(parts, ("id",), (pg_type("int4"),), "u")
    condition = Expr.parse('"u"."id" = "o"."customer"')
    chain.cleared(Join(Scan(ORDERS, "o"), union, condition))
    assert chain.blocks == []
    chain.cleared(Join(Scan(ORDERS, "o"), union, condition, "left"))
    assert [len(block.branches) for block in chain.blocks] == [2]


def test_one_table_is_no_join() -> None:
    assert is_one_table(Filter(Scan(ORDERS, "o"), Expr.parse('"o"."amount" > 0')))
    assert not is_one_table(JOINED)
