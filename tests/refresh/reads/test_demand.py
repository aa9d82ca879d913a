"""Reading by key messages: the keys that are sent, and each stored row once. Whole join trees are
tested with the planner of messages, in `tests/compiler/blocks/test_demand.py`.
"""

from __future__ import annotations

import pyarrow as pa

from millstream.algebra.block import Input, Leaf
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.algebra.wire import wire_of
from millstream.refresh.reads.demand import distinct_keys, rows_of
from millstream.refresh.reads.input_rows import InputRows
from millstream.refresh.reads.read_sql import schema_of
from millstream.spark.engine import Engine
from millstream.testing.planning_server import table

_ORDERS = table("orders", "id int4", key="id")
ORDERS = Input(
    "i0",
    Scan(_ORDERS, "o"),
    tuple(
        Leaf(c.name, Expr.ref("o", c.name), c.type, "carry", wire_of(c.type))
        for c in _ORDERS.columns
    ),
    (),
)


def keys(**columns: list[int | None]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.int32()) for name, values in columns.items()})


def no_engine() -> Engine:
    raise AssertionError("rows that the driver holds need no Spark")


def stored(*rows: tuple[int, str]) -> pa.Table:
    """Rows of ORDERS as a lookup returns them: an id, and where the row is stored."""
    listed = [{"id": id_, "__before": 1, "__after": 1, "__row": place} for id_, place in rows]
    return pa.Table.from_pylist(listed, schema_of(ORDERS, located=True))


def images(*ids: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": id_, "__before": -1, "__after": 0} for id_ in ids], schema_of(ORDERS)
    )


def test_each_key_is_sent_once() -> None:
    found = distinct_keys([keys(a=[1, 2, 1]), keys(a=[2, 3])], ("a",))
    assert sorted(found["a"].to_pylist()) == [1, 2, 3]


def test_a_key_with_a_null_is_not_sent() -> None:
    found = distinct_keys([keys(a=[1, None, 2], b=[1, 1, None])], ("a", "b"))
    assert found.to_pylist() == [{"a": 1, "b": 1}]


def test_a_null_is_sent_where_nulls_are_equal() -> None:
    found = distinct_keys([keys(a=[1, None], b=[None, 1])], ("a", "b"), nulls=(0,))
    assert found.to_pylist() == [{"a": None, "b": 1}]


def test_a_column_that_equals_two_is_in_the_key_twice() -> None:
    assert distinct_keys([keys(a=[5])], ("a", "a")).column_names == ["a", "a"]


def test_a_row_that_two_messages_found_counts_once() -> None:
    held = InputRows(found=[stored((1, "p1"), (2, "p2")), stored((2, "p2"), (3, "p3"))])
    rows = rows_of(ORDERS, held, no_engine)
    assert isinstance(rows, pa.Table)
    assert sorted(rows["id"].to_pylist()) == [1, 2, 3]


def test_equal_rows_stored_in_two_places_both_count() -> None:
    rows = rows_of(ORDERS, InputRows(found=[stored((1, "p1")), stored((1, "p2"))]), no_engine)
    assert isinstance(rows, pa.Table)
    assert rows["__before"].to_pylist() == [1, 1]


def test_images_come_beside_the_stored_rows_that_they_correct() -> None:
    rows = rows_of(ORDERS, InputRows(first=images(1), found=[stored((1, "p1"))]), no_engine)
    assert isinstance(rows, pa.Table)
    assert [(row["__before"], row["__after"]) for row in rows.to_pylist()] == [(-1, 0), (1, 1)]


def test_in_a_long_join_a_stored_row_and_its_image_are_one_row() -> None:
    rows = rows_of(
        ORDERS, InputRows(first=images(1), found=[stored((1, "p1"))]), no_engine, joined=4
    )
    assert isinstance(rows, pa.Table)
    assert rows.to_pylist() == [{"id": 1, "__before": 0, "__after": 1}]


def test_an_input_without_rows_is_an_empty_table() -> None:
    assert rows_of(ORDERS, InputRows(), no_engine) == schema_of(ORDERS).empty_table()
