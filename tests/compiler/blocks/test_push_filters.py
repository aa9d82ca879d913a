"""Conditions over a table and single rows become temporal filters of the table's reads."""

from __future__ import annotations

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Filter, Join, JoinKind, Relation, Scan
from millstream.compiler.blocks.flatten import flatten
from millstream.compiler.blocks.push_filters import Filters, joinable, push_temporal_filters
from millstream.testing.planning_server import PlanningServerDouble, pg_type, single_row, table

ORDERS = Scan(table("orders", "id int8, amount int4, note text", key="id"), "o")
AVERAGE = Scan(single_row("average", "m int4, note text"), "s")


def pushed(relation: Relation, *wanted: Expr) -> tuple[list[str], Filters]:
    """The tables that stay joined, and the temporal filters by alias."""
    (flat,) = flatten(relation)
    result, filters = push_temporal_filters(flat, wanted, PlanningServerDouble())
    return [scan.alias for scan in result.region.scans()], filters


def over_average(condition: str, kind: JoinKind = "inner") -> Relation:
    if kind == "inner":
        return Filter(Join(ORDERS, AVERAGE), Expr.parse(condition))
    return Join(ORDERS, AVERAGE, Expr.parse(condition), kind)


def test_a_comparison_with_a_single_row_becomes_a_filter_with_a_bound() -> None:
    tables, filters = pushed(over_average('"s"."m" < "o"."amount"'))
    assert tables == ["o"]
    (temporal,) = filters["o"]
    assert temporal.bound is not None
    assert (temporal.bound.value.sql, temporal.bound.operator) == ('"o"."amount"', ">")


def test_a_single_row_that_is_an_output_stays_joined() -> None:
    tables, filters = pushed(over_average('"o"."amount" > "s"."m"'), Expr.ref("s", "m"))
    assert tables == ["o", "s"]
    assert "o" in filters


def test_an_equality_by_which_rows_are_looked_up_stays_a_join() -> None:
    assert pushed(over_average('"o"."amount" = "s"."m"')) == (["o", "s"], {})


def test_a_comparison_of_texts_has_no_bound() -> None:
    _, filters = pushed(over_average('"o"."note" > "s"."note"'))
    assert filters["o"][0].bound is None


def test_a_condition_of_a_full_join_stays_where_it_is() -> None:
    assert pushed(over_average('"o"."amount" > "s"."m"', "full"))[1] == {}


def test_without_single_rows_nothing_changes() -> None:
    other = Scan(ORDERS.table, "p")
    assert pushed(Filter(Join(ORDERS, other), Expr.parse('"o"."amount" > "p"."amount"'))) == (
        ["o", "p"],
        {},
    )


def test_integers_of_any_size_can_be_joined_and_floats_with_integers_cannot() -> None:
    assert joinable(pg_type("int2"), pg_type("int8"))
    assert joinable(pg_type("text"), pg_type("varchar"))
    assert not joinable(pg_type("int4"), pg_type("float8"))
    assert joinable(pg_type("jsonb"), pg_type("jsonb"))
    assert not joinable(pg_type("jsonb"), pg_type("text"))
