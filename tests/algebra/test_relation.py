"""Relations check themselves when they are made, and have one printed form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Expand,
    Expansion,
    Filter,
    Join,
    Limit,
    Measure,
    Named,
    Order,
    Project,
    Recursion,
    Scan,
    UnionAll,
    Window,
    replace_scans,
)
from millstream.testing.planning_server import pg_type, table

ORDERS = Scan(table("orders", "id int4, customer int4, amount int4", key="id"), "o")
CUSTOMERS = Scan(table("customers", "id int4, region int4", key="id"), "c")
AMOUNT = Expr.ref("o", "amount")


def test_the_printed_form_is_a_tree_from_the_top() -> None:
    total = Measure("total", Call("sum", AMOUNT))
    grouped = Aggregate(Filter(ORDERS, Expr.parse('"o"."amount" > 0')), (), (total,), "s")
    assert str(grouped).splitlines() == [
        'Aggregate  s: (everything); sum("o"."amount") AS total',
        '  Filter  "o"."amount" > 0',
        "    Scan  public.orders AS o",
    ]


def test_an_expression_over_a_column_that_the_input_lacks_is_an_error() -> None:
    strange = Expr.ref("x", "y")
    with pytest.raises(ValueError, match=r"x\.y"):
        Filter(ORDERS, Expr.parse('"x"."y" > 0'))
    with pytest.raises(ValueError, match=r"x\.y"):
        Project(ORDERS, (Named("a", strange),), "p")
    with pytest.raises(ValueError, match=r"x\.y"):
        Aggregate(ORDERS, (), (Measure("m", Call("sum", strange)),), "g")
    with pytest.raises(ValueError, match=r"x\.y"):
        Limit(ORDERS, (Order(strange),), "LIMIT 1", "l")
    with pytest.raises(ValueError, match=r"x\.y"):
        Window(ORDERS, (strange,), (), "w")


def test_both_sides_of_a_join_need_aliases_of_their_own() -> None:
    with pytest.raises(ValueError, match="alias"):
        Join(ORDERS, ORDERS)


def test_a_mark_join_has_a_mark_in_place_of_its_right_columns() -> None:
    with pytest.raises(ValueError, match="mark"):
        Join(ORDERS, CUSTOMERS, kind="mark")
    with pytest.raises(ValueError, match="mark"):
        Join(ORDERS, CUSTOMERS, mark=Ref("m", "met"))
    joined = Join(ORDERS, CUSTOMERS, kind="mark", mark=Ref("m", "met"))
    assert joined.columns == (*ORDERS.columns, Ref("m", "met"))


def test_the_parts_of_a_union_and_of_a_recursion_have_the_same_width() -> None:
    with pytest.raises(ValueError, match="width"):
        UnionAll((ORDERS, CUSTOMERS), ("a", "b"), (pg_type("int4"), pg_type("int4")))
    with pytest.raises(ValueError, match="width"):
        Recursion("r", ORDERS, CUSTOMERS, True, 0, "", "r")


def test_an_expansion_is_called_with_columns_of_its_input() -> None:
    call = Expansion("f", ("n",), Expr.parse('generate_series(1, "o"."amount")'))
    made = Expand(ORDERS, call, "e")
    assert [ref.column for ref in made.columns] == ["c0", "c1", "c2", "f0"]
    with pytest.raises(ValueError, match="o"):
        Expand(CUSTOMERS, call, "e")


def test_the_rows_of_a_function_are_numbered_once() -> None:
    call = Expansion("f", ("n",), Expr.parse('generate_series(1, "o"."amount")'))
    assert call.sql.startswith("CROSS JOIN LATERAL generate_series(")
    assert '"__ms_number"' in call.sql
    numbered = replace(call, columns=("n", "i"), numbered=True)
    assert numbered.number == '"f"."i"'
    assert '"__ms_number"' not in numbered.sql


def test_an_optional_expansion_is_a_left_join() -> None:
    call = Expansion(
        "f", ("n",), Expr.parse("generate_series(1, 2)"), outer=True, on=Expr.parse('"f"."n" > 1')
    )
    assert call.sql.startswith("LEFT JOIN LATERAL")
    assert call.sql.endswith('ON "f"."n" > 1')


def test_an_aggregate_names_the_columns_it_uses_and_moves_to_other_rows() -> None:
    grouped = Aggregate(
        ORDERS,
        (Named("k", Expr.ref("o", "customer")),),
        (Measure("m", Call("sum", AMOUNT, Expr.parse('"o"."id" > 1'))),),
        "g",
    )
    assert grouped.refs() == (Ref("o", "customer"), Ref("o", "amount"), Ref("o", "id"))
    moved = grouped.over(CUSTOMERS, {ref: Expr.ref("c", "region") for ref in grouped.refs()})
    assert str(moved.measures[0]) == 'sum("c"."region") FILTER (WHERE "c"."region" > 1) AS m'


def test_scans_are_replaced_at_any_depth() -> None:
    relation = Filter(Join(ORDERS, CUSTOMERS), Expr.parse('"o"."id" = "c"."id"'))
    other = table("old_orders", "id int4, customer int4, amount int4")
    swapped = replace_scans(
        relation, lambda scan: replace(scan, table=other) if scan.alias == "o" else scan
    )
    assert [node.table.title for node in swapped.walk() if isinstance(node, Scan)] == [
        "public.old_orders",
        "public.customers",
    ]
