"""The key of a stream table's rows, derived from the keys of its tables."""

from __future__ import annotations

from millstream.algebra.block import Key
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Join, JoinKind, Relation, Scan
from millstream.algebra.types import Column
from millstream.compiler.blocks.flatten import flatten
from millstream.compiler.blocks.row_keys import WIDEST_INDEX, group_key, region_key
from millstream.testing.planning_server import pg_type, table

ORDERS = Scan(table("orders", "id int8, customer int4", key="id"), "o")
CUSTOMERS = Scan(table("customers", "id int4, region int4", key="id"), "c")
VISITS = Scan(table("visits", "customer int4"), "v")
INT4 = pg_type("int4")


def key_of(relation: Relation, *outputs: tuple[str, str]) -> Key:
    (flat,) = flatten(relation)
    return region_key(
        flat.region, {f"{alias}_{column}": Expr.ref(alias, column) for alias, column in outputs}
    )


def joined(kind: JoinKind = "inner", condition: str = '"c"."id" = "o"."customer"') -> Join:
    return Join(ORDERS, CUSTOMERS, Expr.parse(condition), kind)


def test_a_table_whose_row_is_determined_adds_nothing_to_the_key() -> None:
    assert key_of(joined(), ("o", "id"), ("c", "id")) == Key("columns", ("o_id",))


def test_tables_that_do_not_determine_each_other_have_a_key_of_both() -> None:
    assert key_of(
        joined(condition='"c"."region" = "o"."customer"'), ("o", "id"), ("c", "id")
    ).columns == (
        "o_id",
        "c_id",
    )


def test_a_key_that_is_no_output_is_replaced_by_a_row_id() -> None:
    assert key_of(joined(), ("c", "id")) == Key("row_id")


def test_a_column_equal_to_the_key_stands_in_for_it() -> None:
    assert key_of(Join(CUSTOMERS, VISITS, Expr("true"), "inner"), ("c", "id")) == Key("row_id")
    both = Join(
        ORDERS, CUSTOMERS, Expr.parse('"c"."id" = "o"."customer" AND "o"."id" = "c"."region"')
    )
    assert key_of(both, ("c", "region")).columns == ("c_region",)


def test_a_table_without_a_key_has_rows_of_no_identity() -> None:
    assert key_of(VISITS, ("v", "customer")) == Key("row_id")


def test_an_outer_join_by_a_key_duplicates_no_row_and_one_by_another_column_may() -> None:
    assert key_of(joined("left"), ("o", "id")).columns == ("o_id",)
    assert key_of(joined("left", '"c"."region" = "o"."customer"'), ("o", "id")) == Key("row_id")


def test_groups_have_their_keys_as_key() -> None:
    keys = (Column("k0", INT4, not_null=True), Column("k1", INT4))
    assert group_key({"k0": "a", "k1": "b"}, keys) == Key("columns", ("a", "b"), nullable=True)
    assert group_key({"k0": "a"}, keys) == Key("row_id")
    assert group_key({}, ()) == Key("single")


def test_a_key_wider_than_an_index_is_a_row_id() -> None:
    keys = tuple(Column(f"k{number}", INT4) for number in range(WIDEST_INDEX + 1))
    assert group_key({key.name: key.name for key in keys}, keys) == Key("row_id")
