"""Placements: leaf columns, and constants for Spark."""

from __future__ import annotations

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.wire import wire_of
from millstream.compiler.placement.placement import Placement, leaf_ref, literal
from millstream.testing.planning_server import pg_type

TEXT = wire_of(pg_type("text"))
INT4 = wire_of(pg_type("int4"))


def test_only_a_bare_leaf_is_a_leaf() -> None:
    assert leaf_ref(Placement(Expr.ref("i0", "c0"), INT4, pg_type("int4"))) == Ref("i0", "c0")
    assert leaf_ref(Placement(Expr.parse('"i0"."c0" + 1'), INT4, None)) is None


def test_constants_are_cast_to_the_type_that_travels() -> None:
    assert literal(5, INT4).sql == "CAST(5 AS INT)"
    assert literal(None, TEXT).sql == "CAST(NULL AS TEXT)"
    assert literal(True, wire_of(pg_type("bool"))).sql == "TRUE"


def test_a_quote_in_a_constant_is_doubled() -> None:
    assert literal("it's", TEXT).sql == "CAST('it''s' AS TEXT)"
