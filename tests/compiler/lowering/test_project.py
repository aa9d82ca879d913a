"""Lowering a projection."""

from __future__ import annotations

from tests.compiler.lowering.conftest import read_of, steps_of

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Named, Project
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.project import project


def test_outputs_are_computed_and_multiplicities_pass_through(ctx: Lowering) -> None:
    project(Project(read_of("i0"), (Named("x0", Expr.parse('"i0"."c0" + 1')),), "b"), ctx)
    assert steps_of(ctx)["body"] == (
        "SELECT i0_c0 + 1 AS x0, __before, __after FROM i0_0 WHERE (__before <> 0L OR __after <> 0L)"
    )
