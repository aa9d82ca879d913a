"""Rows that are alike go to Spark as one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millstream.algebra.block import Input, Leaf
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.algebra.table import Table
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import wire_of
from millstream.refresh.reads.semijoin import count_duplicates

FLOAT8 = PgType(701, "double precision", "float8")
INT4 = PgType(23, "integer", "int4")


def reading(*types: PgType) -> Input:
    columns = tuple(Column(f"c{n}", type_) for n, type_ in enumerate(types))
    leaves = tuple(Leaf(c.name, Expr.ref("t", c.name), c.type, "carry", wire_of(c.type)) for c in columns)
    return Input("i0", Scan(Table(1, "public", "t", columns, key=tuple(c.name for c in columns)), "t"), leaves, ())


def rows(*listed: tuple[float | int | None, ...], type_: pa.DataType | None = None) -> pa.Table:
    fields = [("c0", type_)] if type_ is not None else []
    schema = pa.schema([*fields, ("__before", pa.int64()), ("__after", pa.int64())])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in listed], schema)


def test_a_stored_row_and_the_image_that_corrects_it_are_one() -> None:
    """In a join of twenty tables an inserted row was two rows of each, and 2^20 of the join."""
    found = count_duplicates(reading(INT4), rows((7, 1, 1), (7, -1, 0), (8, 1, 1), type_=pa.int32()), corrected=True)
    assert sorted(found.to_pylist(), key=str) == [
        {"c0": 7, "__before": 0, "__after": 1},
        {"c0": 8, "__before": 1, "__after": 1},
    ]


def test_zeros_of_either_sign_stay_apart() -> None:
    found = count_duplicates(reading(FLOAT8), rows((0.0, 1, 0), (-0.0, 0, 1), type_=pa.float64()), corrected=True)
    assert sorted(str(one) for one in found["c0"].to_pylist()) == ["-0.0", "0.0"]


def test_not_a_number_and_null_are_values() -> None:
    found = count_duplicates(
        reading(FLOAT8), rows(*[(float("nan"), 1, 1), (None, 1, 1)] * 2, type_=pa.float64()), corrected=True
    )
    assert found["__before"].to_pylist() == [2, 2]


@pytest.mark.parametrize("image", [-1, 1])
def test_rows_without_columns_are_counted(image: int) -> None:
    """The law found it: an input of which nothing but the number of rows is asked failed in Arrow."""
    found = count_duplicates(reading(), rows((1, 1), (1, 1), (image, 0)), corrected=True)
    assert found.to_pylist() == [{"__before": 2 + image, "__after": 2}]
