"""Restricting rows to the groups that are recomputed."""

from __future__ import annotations

from tests.compiler.lowering.conftest import steps_of

from millstream.algebra.block import AggregateHead, BlockColumn
from millstream.algebra.wire import wire_of
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.restrict import restrict
from millstream.testing.planning_server import pg_type


def test_the_group_of_null_is_found_too(ctx: Lowering) -> None:
    int4 = pg_type("int4")
    head = AggregateHead(tuple(BlockColumn(name, int4, wire_of(int4)) for name in ("k0", "k1")), ())
    restrict("rows", head, "wanted", ctx)
    assert steps_of(ctx)["wanted"] == (
        "SELECT b.* FROM rows AS b LEFT SEMI JOIN wanted AS w ON b.k0 <=> w.k0 AND b.k1 <=> w.k1"
    )
