"""Conditions as pairs: which tables are joined with them, and how rows are named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from millstream.algebra.block import PairsBlock
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Join, JoinKind, Relation, Scan
from millstream.algebra.table import BlockRows
from millstream.algebra.types import Column
from millstream.compiler.blocks.flatten import FlatBranch, flatten
from millstream.compiler.blocks.pairs import join_pairs
from millstream.compiler.blocks.region import OuterJoin
from millstream.errors import Unsupported
from millstream.testing.planning_server import PlanningServerDouble, pg_type, table

T = Scan(table("t", "id int4, x text, k int4", key="id"), "t")
U = Scan(table("u", "id int4, y text, k int4", key="id"), "u")
V = Scan(table("v", "z text, k int4, n numeric"), "v")
PREFIX = "starts_with(t.x, u.y)"


class Store:
    """Blocks as they are added."""

    def __init__(self) -> None:
        self.server = PlanningServerDouble()
        self.blocks: list[PairsBlock] = []
        self.values: list[tuple[str, ...]] = []

    def distinct_values(self, scan: Scan, values: Sequence[Expr]) -> Scan | Unsupported:
        self.values.append(tuple(texts(values)))
        columns = tuple(Column(f"k{n}", pg_type("text")) for n in range(len(values)))
        return Scan(BlockRows(columns, block=0, relation_name="values"), scan.alias)

    def add_pairs(self, block: PairsBlock) -> Scan:
        self.blocks.append(block)
        columns = tuple(Column(output.column.name, pg_type("int4")) for output in block.outputs)
        names = tuple(column.name for column in columns)
        return Scan(BlockRows(columns, block=1, relation_name="pairs", key=names), "p")


def paired(relation: Relation) -> tuple[FlatBranch | Unsupported, Store]:
    """Return the one branch of a relation, joined with pairs."""
    store = Store()
    (flat,) = flatten(relation)
    return join_pairs(flat, store), store


def joined(condition: str, kind: JoinKind = "inner", right: Scan = U) -> Join:
    mark = Ref("m", "met") if kind == "mark" else None
    return Join(T, right, Expr.parse(condition), kind, mark)


def texts(conditions: Sequence[Expr]) -> list[str]:
    return [condition.sql.replace('"', "") for condition in conditions]


def test_the_tables_of_an_inner_join_are_joined_with_the_pairs() -> None:
    flat, store = paired(joined(PREFIX))
    assert isinstance(flat, FlatBranch)
    assert [str(store.blocks[0].condition)] == ['starts_with("t"."x", "u"."y")']
    assert [scan.alias for scan in flat.region.scans()] == ["t", "u", "p"]
    assert texts(flat.region.conditions) == ["t.id = p.c0", "u.id = p.c1"]


@pytest.mark.parametrize("kind", ["left", "mark"])
def test_an_outer_join_is_by_the_key_of_the_preserved_side(kind: JoinKind) -> None:
    flat, store = paired(joined(f"t.k = u.k AND {PREFIX}", kind))
    assert isinstance(flat, FlatBranch)
    (outer,) = flat.region.items
    assert isinstance(outer, OuterJoin)
    assert texts(outer.on) == ["t.id = p.c0"]
    assert texts(outer.right.conditions) == ["u.id = p.c1"]
    assert "k" in str(store.blocks[0].condition), "the equality is one of the pairs"


def test_a_full_join_has_the_pairs_on_its_left_side() -> None:
    flat, _ = paired(joined(f"t.k = u.k AND {PREFIX}", "full"))
    assert isinstance(flat, FlatBranch)
    (outer,) = flat.region.items
    assert isinstance(outer, OuterJoin)
    (inner,) = outer.left.items
    assert isinstance(inner, OuterJoin)
    assert (inner.kind, texts(inner.on), texts(outer.on)) == (
        "left",
        ["t.id = p.c0"],
        ["u.id = p.c1"],
    )


def test_rows_of_a_table_without_a_key_are_named_by_the_columns_of_the_condition() -> None:
    flat, store = paired(joined("starts_with(t.x, v.z) AND t.k > 3", "left", V))
    assert isinstance(flat, FlatBranch)
    assert store.values == [("v.z",)]
    (outer,) = flat.region.items
    assert isinstance(outer, OuterJoin)
    assert texts(outer.right.conditions) == ["v.z IS NOT DISTINCT FROM p.c1"]
    assert texts(outer.on) == ["t.k > 3", "t.id = p.c0"]
    assert [texts(one.filters) for one in store.blocks[0].inputs()] == [["t.k > 3"], []]


def test_values_that_are_equal_and_written_differently_are_named_by_their_text() -> None:
    flat, store = paired(joined("starts_with(t.x, CAST(v.n AS TEXT))", "left", V))
    assert isinstance(flat, FlatBranch)
    assert store.values == [("CAST((v.n) AS TEXT)",)]
    assert texts([store.blocks[0].condition]) == [
        "starts_with(t.x, CAST(CAST((v.k0) AS DECIMAL) AS TEXT))"
    ]


def test_what_spark_can_evaluate_has_no_pairs() -> None:
    relation = joined("t.k < u.k", "left")
    flat, store = paired(relation)
    assert (flat, store.blocks) == (flatten(relation)[0], [])


def test_a_condition_over_three_tables_and_a_full_join_without_a_key_are_refused() -> None:
    three = Join(Join(T, U), V, Expr.parse("starts_with(t.x || u.y, v.z)"))
    full = joined("t.k = v.k AND starts_with(t.x, v.z)", "full", V)
    assert [type(paired(one)[0]) for one in (three, full)] == [Unsupported, Unsupported]
