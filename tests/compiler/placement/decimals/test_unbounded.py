"""Numerics that may have more digits after the point than Spark's decimals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Aggregate, Call, Measure, Named, Scan
from millstream.compiler.placement.decimals.unbounded import is_unbounded, unbounded_group_columns
from millstream.testing.planning_server import single_row


@pytest.mark.parametrize(
    "text", ["x / 3", "avg(x)", "1 + abs(x / 3)", "CAST(x / 3 AS numeric)", "sqrt(x)", "u + 1"]
)
def test_quotients_and_unknown_functions_are_unbounded(text: str) -> None:
    assert is_unbounded(Expr.parse(text), lambda ref: ref.column == "u")


@pytest.mark.parametrize(
    "text", ["x + 1", "x * x", "round(x / 3, 2)", "CAST(x / 3 AS numeric(9, 2))", "abs(x)"]
)
def test_rounded_values_and_products_are_not(text: str) -> None:
    assert not is_unbounded(Expr.parse(text), lambda ref: ref.column == "u")


def test_an_average_and_a_sum_over_unbounded_values_are_unbounded_columns() -> None:
    rows = Scan(
        replace(single_row("t", "x numeric, u numeric"), single=False, unbounded=frozenset({"u"})),
        "t",
    )
    calls = {"a": ("avg", "x"), "s": ("sum", "u"), "t": ("sum", "x"), "c": ("count", "u")}
    measures = tuple(
        Measure(name, Call(function, Expr.ref("t", column)))
        for name, (function, column) in calls.items()
    )
    grouped = Aggregate(rows, (Named("k", Expr(Ref("t", "u").sql)),), measures, "g")
    assert unbounded_group_columns(grouped) == {"k", "a", "s"}
