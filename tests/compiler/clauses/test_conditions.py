"""Filters by conditions."""

from __future__ import annotations

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Filter, Scan
from millstream.compiler.clauses.conditions import filter_rows
from millstream.testing.planning_server import table

T = Scan(table("t", "a int4, b int4"), "t")


def test_all_conditions_are_one_flat_filter() -> None:
    filtered = filter_rows(T, [Expr('"t"."a" > 0 AND "t"."b" > 0'), Expr('"t"."a" < 9')])
    assert isinstance(filtered, Filter)
    assert filtered.predicate.sql == '("t"."a" > 0) AND ("t"."b" > 0) AND ("t"."a" < 9)'


def test_without_conditions_there_is_no_filter() -> None:
    assert filter_rows(T, []) is T
