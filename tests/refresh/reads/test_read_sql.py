"""The SQL that reads an input: filters, counts before and after, and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from psycopg import sql

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
WAS, NOW = sql.SQL("o.id < 10"), sql.SQL("o.id < 20")
MOVED = FilterVersions(was=WAS, now=NOW, between=sql.SQL("o.id BETWEEN 10 AND 20"))
STEADY = FilterVersions(was=WAS, now=WAS)
TABLE, IMAGES, KEYS = sql.Identifier("orders"), sql.Identifier("images"), sql.Identifier("keys")
TRUE = sql.SQL("true")


def texts(parts: Sequence[sql.Composable]) -> list[str]:
    return [part.as_string() for part in parts]


def test_every_read_applies_the_filters_of_the_input() -> None:
    reads = [
        all_sql(ORDERS, TABLE, before=1),
        images_sql(ORDERS, IMAGES),
        slice_sql(ORDERS, TRUE),
        lookup_sql(ORDERS, TABLE, Lookup(["id"], KEYS), before=1),
        crossing_sql(ORDERS, TABLE, MOVED, limit=9),
    ]
    assert [query for query in texts(reads) if ORDERS.filters[0].sql not in query] == []


def test_an_input_without_filters_has_no_where_clause() -> None:
    query = all_sql(replace(ORDERS, filters=()), TABLE, before=1)
    assert "WHERE" not in query.as_string()


@pytest.mark.parametrize("before", [0, 1])
def test_a_stored_row_counts_as_often_before_as_the_caller_says_and_once_after(before: int) -> None:
    query = all_sql(ORDERS, TABLE, before=before)
    assert f', {before}, 1 FROM "orders" AS ' in query.as_string()


def test_an_image_corrects_the_count_before_only() -> None:
    query = images_sql(ORDERS, IMAGES).as_string()
    assert ", CASE __ms_action WHEN 'I' THEN -1 ELSE 1 END, 0 FROM \"images\" AS " in query


def test_a_row_that_crosses_a_temporal_filter_counts_in_the_version_that_it_passes() -> None:
    counts, conditions = MOVED.stored(1)
    assert MOVED.may_cross
    assert texts(counts) == [
        "CASE WHEN o.id < 10 THEN 1 ELSE 0 END",
        "CASE WHEN o.id < 20 THEN 1 ELSE 0 END",
    ]
    assert texts(conditions) == ["((o.id < 10) OR (o.id < 20))"]


def test_a_temporal_filter_that_has_not_moved_is_a_plain_condition() -> None:
    assert not STEADY.may_cross
    counts, conditions = STEADY.stored(1)
    assert (texts(counts), texts(conditions)) == (["1", "1"], ["(o.id < 10)"])


def test_only_the_new_version_of_a_temporal_filter_counts_if_nothing_was_there_before() -> None:
    counts, conditions = MOVED.stored(0)
    assert (texts(counts), texts(conditions)) == (["0", "1"], ["(o.id < 20)"])


def test_no_temporal_filter_is_no_condition() -> None:
    counts, conditions = FilterVersions().stored(1)
    assert (texts(counts), conditions) == (["1", "1"], [])


def test_images_are_filtered_by_the_version_before() -> None:
    assert images_sql(ORDERS, IMAGES, MOVED).as_string().endswith(" AND (o.id < 10)")


def test_nulls_are_equal_only_at_the_positions_named() -> None:
    columns = ["id", "note"]
    query = lookup_sql(ORDERS, TABLE, Lookup(columns, KEYS, (1,)), before=1).as_string()
    assert '"__ms_k"."k1" IS NULL' in query
    assert '"__ms_k"."k0" IS NULL' not in query


def test_a_lookup_says_where_rows_are_stored() -> None:
    query = lookup_sql(ORDERS, TABLE, Lookup(["id"], KEYS), before=1)
    assert '"o".tableoid::text || "o".ctid::text' in query.as_string()
    assert schema_of(ORDERS, located=True).names[-1] == ROW
    assert ROW not in schema_of(ORDERS).names


def test_a_key_is_not_truncated_to_the_length_of_the_column() -> None:
    """A key of six characters cut to varchar(5) would find rows that it does not equal."""
    source = keys_sql(ORDERS, ["note"], sql.Identifier("wanted")).as_string()
    assert source.startswith("(SELECT DISTINCT ")
    assert '::"pg_catalog"."varchar" AS "k0"' in source
    assert "(5)" not in source


def test_images_that_cancel_are_left_out_only_of_a_consolidated_slice() -> None:
    assert "__ms_pairs" in slice_sql(ORDERS, TRUE, consolidated=True).as_string()
    assert "__ms_pairs" not in slice_sql(ORDERS, TRUE).as_string()


def test_a_filter_has_both_versions_or_none() -> None:
    with pytest.raises(ValueError, match="two versions"):
        FilterVersions(now=NOW)
