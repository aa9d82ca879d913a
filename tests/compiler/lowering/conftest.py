"""Rules of lowering are called one by one: each test looks at the steps that a rule adds."""

from __future__ import annotations

import pytest

from millstream.algebra.block import Input, Leaf, Match, Pair, Read
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import JoinKind, Scan
from millstream.algebra.wire import wire_of
from millstream.compiler.lowering import RULES
from millstream.compiler.lowering.context import Lowering
from millstream.testing.planning_server import pg_type, table


def read_of(name: str) -> Read:
    """A read of two integer columns, c0 and c1."""
    scan = Scan(table(f"table_{name}", "c0 int4, c1 int4"), name)
    int4 = pg_type("int4")
    leaves = tuple(
        Leaf(column, Expr.ref(name, column), int4, "carry", wire_of(int4))
        for column in ("c0", "c1")
    )
    return Read(Input(name, scan, leaves, ()))


def join_of(kind: JoinKind, *residual: str, mark: Ref | None = None) -> Match:
    """A join of i0 and i1 by c0, written from the right to the left."""
    pair = Pair(Ref("i1", "c0"), Ref("i0", "c0"))
    return Match(
        kind, read_of("i0"), read_of("i1"), (pair,), tuple(map(Expr.parse, residual)), mark
    )


@pytest.fixture
def ctx() -> Lowering:
    """An empty statement whose inputs are the views v0 and v1."""
    return Lowering(RULES, {"i0": "v0", "i1": "v1"})


def steps_of(ctx: Lowering) -> dict[str, str]:
    """Each step by its name without its number; placeholders of others are readable."""
    return {name.rsplit("_", 1)[0]: select.replace("\0", "") for name, select in ctx.steps}
