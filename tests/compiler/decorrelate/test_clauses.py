"""LIMIT, joins and aggregates for all bindings at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Call, Measure, Relation
from millstream.compiler.decorrelate.clauses import measure_or_default, tie_breakers
from millstream.errors import Unsupported
from millstream.testing.planning_server import pg_type

Build = Callable[[str], Relation]


def test_limit_and_offset_count_the_rows_of_each_binding(build: Build) -> None:
    tree = str(
        build(
            "SELECT t.id, q.b FROM t, LATERAL ( SELECT u.b FROM u WHERE (u.a > t.a) ORDER BY u.b OFFSET 1 LIMIT 2) q"
        )
    )
    assert "PARTITION BY" in tree
    assert "> 1" in tree
    assert "<= 2 + 1" in tree


def test_limit_by_an_expression_is_refused(build: Build) -> None:
    with pytest.raises(Unsupported, match="LIMIT or OFFSET by"):
        build(
            "SELECT t.id, q.b FROM t, LATERAL ( SELECT u.b FROM u WHERE (u.a > t.a) ORDER BY u.b LIMIT (1 + 1)) q"
        )


def test_the_bindings_of_both_sides_of_a_full_join_are_equal(build: Build) -> None:
    tree = str(
        build(
            "SELECT t.id, q.n FROM t, LATERAL ( SELECT count(u.b) AS n FROM (u FULL JOIN w "
            "ON (((w.a = u.a) AND (w.b > t.b))))) q"
        )
    )
    assert "Join  full" in tree
    assert tree.count("Aggregate  given") == 3
    assert "COALESCE" in tree


def test_ties_are_broken_by_all_columns_and_by_text_where_there_is_no_order() -> None:
    types = [pg_type("int4"), pg_type("int4")]
    columns = [Expr.ref("q", "x"), Expr("1")]
    assert tie_breakers(columns, types) == [Expr.ref("q", "x").sql]


def test_the_value_over_no_rows_is_known_for_the_servers_aggregates_only() -> None:
    assert measure_or_default(Measure("m", Call("count", None)), "g").sql == 'COALESCE("g"."m", 0)'
    assert measure_or_default(Measure("m", Call("sum", Expr("x"))), "g") == Expr.ref("g", "m")
    with pytest.raises(Unsupported, match="may have no rows"):
        measure_or_default(Measure("m", Call("app.total", Expr("x"))), "g")
