"""Lowering the read of an input."""

from __future__ import annotations

from dataclasses import replace

from tests.compiler.lowering.conftest import read_of, steps_of

from millstream.algebra.block import Leaf, Read
from millstream.algebra.expr import Expr
from millstream.algebra.wire import number_wire_of
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.read import read
from millstream.testing.planning_server import pg_type


def test_leaves_get_flat_names(ctx: Lowering) -> None:
    read(read_of("i0"), ctx)
    assert steps_of(ctx) == {"i0": "SELECT c0 AS i0_c0, c1 AS i0_c1, __before, __after FROM v0"}


def test_a_decimal_arrives_as_text_and_becomes_a_number(ctx: Lowering) -> None:
    type_ = pg_type("numeric(12,2)")
    wire = number_wire_of(type_)
    assert wire is not None
    leaf = Leaf("c0", Expr.ref("i0", "c0"), type_, "number", wire)
    read(Read(replace(read_of("i0").input, leaves=(leaf,))), ctx)
    assert steps_of(ctx)["i0"].startswith("SELECT CAST(c0 AS decimal(12,2)) AS i0_c0, ")
