"""Conditions that look at how a value is written."""

from __future__ import annotations

import pytest

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Filter, Named, Project, Scan
from millstream.compiler.blocks.written_keys import column_type, looks_at_writing
from millstream.testing.planning_server import PlanningServerDouble, table

SERVER = PlanningServerDouble()
T = Scan(table("t", "i int4, n numeric, d numeric(8,2), f float8, b bpchar, t text"), "t")


@pytest.mark.parametrize(
    "condition",
    [
        "scale(t.n) = 1",
        "CAST(t.n AS TEXT) = '1.0'",
        "t.n / 3 > 1",
        "CAST(t.f AS TEXT) = '-0'",
        "CAST(t.n AS TEXT) LIKE '1%'",
        "COALESCE(scale(t.n), 1) = t.n",
    ],
)
def test_functions_and_casts_look_at_how_a_value_is_written(condition: str) -> None:
    assert looks_at_writing(T, Expr.parse(condition), SERVER)


@pytest.mark.parametrize(
    "condition",
    [
        "t.n > 1",
        "(t.n + 1) * 2 <= t.f",
        "t.n IS NULL",
        "COALESCE(t.n, 0) = 1 OR NOT t.f < 2",
        "ROUND(t.n) = 1",
        "t.b = 'a'",
        "scale(t.d) = 2",
        "CAST(t.i AS TEXT) = '1'",
        "t.t LIKE 'a%'",
    ],
)
def test_comparisons_of_values_and_types_that_print_alike_do_not(condition: str) -> None:
    assert not looks_at_writing(T, Expr.parse(condition), SERVER)


def test_a_column_has_the_type_of_what_it_is_computed_from() -> None:
    outputs = (Named("a", Expr.ref("t", "n")), Named("x", Expr.parse("t.i + 1")))
    project = Project(Filter(T, Expr.parse("t.i > 0")), outputs, "q")
    found = [column_type(project, Ref("q", name), SERVER) for name in ("a", "x", "y")]
    assert [str(type_) for type_ in found] == ["numeric", "integer", "None"]
