"""Semi-join reduction drops rows without a match; equal rows go to Spark as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from millstream.algebra.block import Branch, Edge, Input, Leaf, Read
from millstream.algebra.expr import Expr
from millstream.algebra.relation import JoinKind, Scan
from millstream.algebra.table import SourceTable
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import wire_of
from millstream.compiler.blocks.demand import Id
from millstream.refresh.reads import semijoin
from millstream.refresh.reads.input_rows import InputRows
from millstream.refresh.reads.semijoin import SemiJoinReduction, compares_exactly, count_duplicates
from millstream.spark.scan import Scanned

FLOAT8 = PgType(701, "double precision", "float8")
INT4 = PgType(23, "integer", "int4")


def reading(*types: PgType) -> Input:
    columns = tuple(Column(f"c{n}", type_) for n, type_ in enumerate(types))
    leaves = tuple(
        Leaf(c.name, Expr.ref("t", c.name), c.type, "carry", wire_of(c.type)) for c in columns
    )
    read = SourceTable(
        columns, oid=1, schema="public", name="t", key=tuple(c.name for c in columns)
    )
    return Input("i0", Scan(read, "t"), leaves, ())


def rows(*listed: tuple[float | int | None, ...], type_: pa.DataType | None = None) -> pa.Table:
    fields = [("c0", type_)] if type_ is not None else []
    schema = pa.schema([*fields, ("__before", pa.int64()), ("__after", pa.int64())])
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in listed], schema
    )


def test_a_stored_row_and_the_image_that_corrects_it_are_one() -> None:
    """In a join of twenty tables an inserted row was two rows of each, and 2^20 of the join."""
    found = count_duplicates(
        reading(INT4), rows((7, 1, 1), (7, -1, 0), (8, 1, 1), type_=pa.int32()), corrected=True
    )
    assert sorted(found.to_pylist(), key=str) == [
        {"c0": 7, "__before": 0, "__after": 1},
        {"c0": 8, "__before": 1, "__after": 1},
    ]


def test_zeros_of_either_sign_stay_apart() -> None:
    found = count_duplicates(
        reading(FLOAT8), rows((0.0, 1, 0), (-0.0, 0, 1), type_=pa.float64()), corrected=True
    )
    assert sorted(str(one) for one in found["c0"].to_pylist()) == ["-0.0", "0.0"]


def test_not_a_number_and_null_are_values() -> None:
    found = count_duplicates(
        reading(FLOAT8),
        rows(*[(float("nan"), 1, 1), (None, 1, 1)] * 2, type_=pa.float64()),
        corrected=True,
    )
    assert found["__before"].to_pylist() == [2, 2]


@pytest.mark.parametrize("image", [-1, 1])
def test_rows_without_columns_are_counted(image: int) -> None:
    """The law found it: an input of which nothing but the number of rows is asked failed in Arrow."""
    found = count_duplicates(reading(), rows((1, 1), (1, 1), (image, 0)), corrected=True)
    assert found.to_pylist() == [{"__before": 2 + image, "__after": 2}]


# -- the reduction -----------------------------------------------------------------------------


def branch(
    *, kind: JoinKind = "inner", pairs: tuple[tuple[str, str], ...] = (("c0", "c0"),)
) -> Branch:
    """`a` joined to `b` by column c0."""
    inputs = tuple(replace(reading(INT4), name=name) for name in "ab")
    return Branch(inputs, (Edge("a", "b", pairs, kind),), Read(inputs[0]), ())


def keys(*values: int | None) -> pa.Table:
    return pa.table({"c0": pa.array(values, pa.int32())})


def reduced(
    joined: Branch, name: str, rows: pa.Table, partners: InputRows, waiting: Sequence[Id] = ()
) -> list[int]:
    """The keys that are left of the rows of an input, when the other end holds these partners."""
    other = "b" if name == "a" else "a"
    reduction = SemiJoinReduction(
        joined, {name: InputRows(first=rows), other: partners}, set(waiting)
    )
    values: list[int] = reduction.rows(name, rows)["c0"].to_pylist()
    return values


@pytest.fixture
def few_rows_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semijoin, "FEW", 0)


@pytest.mark.usefixtures("few_rows_are_compared")
def test_rows_without_a_match_are_dropped() -> None:
    assert reduced(
        branch(), "a", keys(1, 2, None, 2), InputRows(first=keys(2), found=[keys(3)])
    ) == [2, 2]


@pytest.mark.usefixtures("few_rows_are_compared")
@pytest.mark.parametrize(("partners", "left"), [((2, None), [2, None]), ((2,), [2])])
def test_where_nulls_are_equal_a_null_matches_a_null(
    partners: tuple[int | None, ...], left: list[int | None]
) -> None:
    """Dropping it would lose a row of the result without an error."""
    edge = replace(branch().edges[0], nulls=(0,))
    joined = replace(branch(), edges=(edge,))
    assert reduced(joined, "a", keys(1, 2, None), InputRows(first=keys(*partners))) == left


@pytest.mark.usefixtures("few_rows_are_compared")
def test_the_preserved_side_of_an_outer_join_is_not_reduced() -> None:
    joined = branch(kind="left")
    assert reduced(joined, "a", keys(1, 2), InputRows(first=keys(2))) == [1, 2]
    assert reduced(joined, "b", keys(1, 2), InputRows(first=keys(2))) == [2]


@pytest.mark.usefixtures("few_rows_are_compared")
def test_nothing_is_dropped_before_the_answer_has_come() -> None:
    partners = InputRows(first=keys(2))
    assert reduced(branch(), "a", keys(1, 2), partners, waiting=[("a", "b", 1)]) == [1, 2]
    assert reduced(branch(), "a", keys(1, 2), partners, waiting=[("b", "a", 1)]) == [2]


@pytest.mark.usefixtures("few_rows_are_compared")
def test_nothing_is_dropped_if_the_driver_does_not_hold_the_partners() -> None:
    scanned = Scanned(cast(DataFrame, None), 1, lambda: 0)
    assert reduced(branch(), "a", keys(1, 2), InputRows(whole=scanned)) == [1, 2]


def test_few_rows_are_not_compared() -> None:
    assert reduced(branch(), "a", keys(1, 2), InputRows(first=keys(2))) == [1, 2]


def test_integers_compare_exactly_and_floating_point_numbers_do_not() -> None:
    small = leaf_of(INT4)
    large = leaf_of(PgType(20, "bigint", "int8"))
    assert compares_exactly(small, large)
    assert not compares_exactly(small, leaf_of(FLOAT8))
    assert not compares_exactly(leaf_of(FLOAT8), leaf_of(FLOAT8))


def leaf_of(type_: PgType) -> Leaf:
    return reading(type_).leaves[0]
