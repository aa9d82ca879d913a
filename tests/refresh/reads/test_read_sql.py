"""The SQL that reads an input: filters, counts before and after, and keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.algebra.block import Input, Leaf
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.algebra.wire import wire_of
from millstream.refresh.reads.read_sql import (
    ROW,
    FilterVersions,
    Lookup,
    all_sql,
    crossing_sql,
    images_sql,
    keys_sql,
    lookup_sql,
    schema_of,
    slice_sql,
)
from millstream.testing.planning_server import table

_ORDERS = table("orders", "id int4, note varchar(5)", key="id")
ORDERS = Input(
    "i0",
    Scan(_ORDERS, "o"),
    tuple(
        Leaf(c.name, Expr.ref("o", c.name), c.type, "carry", wire_of(c.type))
        for c in _ORDERS.columns
    ),
    (Expr.parse('"o"."id" > 3'),),
)
MOVED = FilterVersions(was="o.id < 10", now="o.id < 20", between="o.id BETWEEN 10 AND 20")
STEADY = FilterVersions(was="o.id < 10", now="o.id < 10")


def test_every_read_applies_the_filters_of_the_input() -> None:
    reads = [
        all_sql(ORDERS, "public.orders", before=1),
        images_sql(ORDERS, "images"),
        slice_sql(ORDERS, "true"),
        lookup_sql(ORDERS, "public.orders", Lookup(["id"], "keys"), before=1),
        crossing_sql(ORDERS, "public.orders", MOVED, limit=9),
    ]
    assert [query for query in reads if ORDERS.filters[0].sql not in query] == []


def test_an_input_without_filters_has_no_where_clause() -> None:
    assert "WHERE" not in all_sql(replace(ORDERS, filters=()), "public.orders", before=1)


@pytest.mark.parametrize("before", [0, 1])
def test_a_stored_row_counts_as_often_before_as_the_caller_says_and_once_after(before: int) -> None:
    assert f", {before}, 1 FROM public.orders AS " in all_sql(
        ORDERS, "public.orders", before=before
    )


def test_an_image_corrects_the_count_before_only() -> None:
    assert ", CASE __ms_action WHEN 'I' THEN -1 ELSE 1 END, 0 FROM images AS " in images_sql(
        ORDERS, "images"
    )


def test_a_row_that_crosses_a_temporal_filter_counts_in_the_version_that_it_passes() -> None:
    counts, conditions = MOVED.stored(1)
    assert MOVED.may_cross
    assert counts == [
        "CASE WHEN o.id < 10 THEN 1 ELSE 0 END",
        "CASE WHEN o.id < 20 THEN 1 ELSE 0 END",
    ]
    assert conditions == ["((o.id < 10) OR (o.id < 20))"]


def test_a_temporal_filter_that_has_not_moved_is_a_plain_condition() -> None:
    assert not STEADY.may_cross
    assert STEADY.stored(1) == (["1", "1"], ["(o.id < 10)"])


def test_only_the_new_version_of_a_temporal_filter_counts_if_nothing_was_there_before() -> None:
    assert MOVED.stored(0) == (["0", "1"], ["(o.id < 20)"])


def test_no_temporal_filter_is_no_condition() -> None:
    assert FilterVersions().stored(1) == (["1", "1"], [])


def test_images_are_filtered_by_the_version_before() -> None:
    assert images_sql(ORDERS, "images", MOVED).endswith(" AND (o.id < 10)")


def test_nulls_are_equal_only_at_the_positions_named() -> None:
    columns = ["id", "note"]
    query = lookup_sql(ORDERS, "public.orders", Lookup(columns, "keys", (1,)), before=1)
    assert "__ms_k.k1 IS NULL" in query
    assert "__ms_k.k0 IS NULL" not in query


def test_a_lookup_says_where_rows_are_stored() -> None:
    query = lookup_sql(ORDERS, "public.orders", Lookup(["id"], "keys"), before=1)
    assert '"o".tableoid::text || "o".ctid::text' in query
    assert schema_of(ORDERS, located=True).names[-1] == ROW
    assert ROW not in schema_of(ORDERS).names


def test_a_key_is_not_truncated_to_the_length_of_the_column() -> None:
    """A key of six characters cut to varchar(5) would find rows that it does not equal."""
    source = keys_sql(ORDERS, ["note"], "wanted")
    assert source.startswith("(SELECT DISTINCT ")
    assert '::pg_catalog."varchar" AS k0' in source
    assert "(5)" not in source


def test_images_that_cancel_are_left_out_only_of_a_consolidated_slice() -> None:
    assert "__ms_pairs" in slice_sql(ORDERS, "true", consolidated=True)
    assert "__ms_pairs" not in slice_sql(ORDERS, "true")
