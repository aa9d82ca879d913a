"""A join is lowered by the rule of its kind."""

from __future__ import annotations

from typing import get_args

import pytest
from tests.compiler.lowering.conftest import join_of, steps_of

from millstream.algebra.expr import Ref
from millstream.algebra.relation import JoinKind
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.match import KINDS, match


def test_each_kind_of_join_has_a_rule() -> None:
    assert set(KINDS) == set(get_args(JoinKind))


@pytest.mark.parametrize(
    ("kind", "last"),
    [("inner", "joined"), ("left", "null_extended"), ("full", "null_extended"), ("mark", "marked")],
)
def test_the_rule_of_the_kind_adds_the_last_step(kind: JoinKind, last: str, ctx: Lowering) -> None:
    mark = Ref("m", "met") if kind == "mark" else None
    step = match(join_of(kind, mark=mark), ctx)
    name, _ = ctx.steps[-1]
    assert name.startswith(last)
    assert step.strip("\0") == name
    assert last in steps_of(ctx)
