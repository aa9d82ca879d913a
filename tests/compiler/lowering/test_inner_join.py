"""Lowering an inner join."""

from __future__ import annotations

from dataclasses import replace

from tests.compiler.lowering.conftest import join_of, read_of, steps_of

from millstream.algebra.block import Match
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.lowering.inner_join import inner_join


def test_each_version_is_the_product_of_its_sides(ctx: Lowering) -> None:
    inner_join(join_of("inner"), ctx)
    joined = steps_of(ctx)["joined"]
    assert "l.__before * r.__before AS __before, l.__after * r.__after AS __after" in joined
    assert "WHERE" not in joined


def test_without_a_condition_the_join_is_a_cross_join(ctx: Lowering) -> None:
    inner_join(replace(join_of("inner"), pairs=()), ctx)
    assert "CROSS JOIN" in steps_of(ctx)["joined"]


def test_in_a_chain_of_joins_pairs_of_no_version_are_dropped(ctx: Lowering) -> None:
    inner = Match("inner", join_of("inner"), read_of("i2"), ())
    inner_join(inner, Lowering(ctx.rules, {**ctx.views, "i2": "v2"}))
    chained = Lowering(ctx.rules, {**ctx.views, "i2": "v2"})
    inner_join(inner, chained)
    assert chained.steps[-1][1].endswith(
        "WHERE l.__before * r.__before <> 0L OR l.__after * r.__after <> 0L"
    )
