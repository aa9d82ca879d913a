"""Blocks with an aggregate: keys, state, HAVING, and aggregates that only PostgreSQL computes."""

from __future__ import annotations

from collections.abc import Callable

from tests.compiler.conftest import planned

from millstream.algebra.block import AggregateBlock
from millstream.algebra.relation import Relation
from millstream.compiler.blocks.group_block import peel

Build = Callable[[str], Relation]


def test_filters_and_projections_above_the_topmost_aggregate_become_outputs_and_having(
    build: Build,
) -> None:
    peeled = peel(
        build("SELECT t.a + 1 AS k, sum(t.b) AS s FROM public.t GROUP BY t.a HAVING sum(t.b) > 3")
    )
    assert peeled.aggregate is not None
    assert [output.name for output in peeled.outputs] == ["k", "s"]
    assert [condition.sql for condition in peeled.conditions] == ['"g"."m0" > 3']
    assert peel(build("SELECT t.a FROM public.t")).aggregate is None


def test_measures_of_one_argument_share_its_columns() -> None:
    [block] = planned(
        "SELECT t.a, sum(t.b) AS s, avg(t.b) AS m FROM public.t GROUP BY t.a", "a s m"
    )
    assert [column.name for column in block.columns] == ["k0", "a0"]


def test_a_group_that_is_shown_by_its_key_has_that_key() -> None:
    [block] = planned("SELECT count(*) AS n, t.a AS of FROM public.t GROUP BY t.a", "n of")
    assert block.key.columns == ("of",)
    [hidden] = planned("SELECT count(*) AS n FROM public.t GROUP BY t.a", "n")
    assert hidden.key.columns == ()


def test_having_is_evaluated_over_the_state() -> None:
    [block] = planned("SELECT t.a FROM public.t GROUP BY t.a HAVING count(*) > 3", "a")
    assert block.having is not None
    assert "s.n0" in block.having
    assert [column.name for column in block.columns] == ["k0"]


def test_an_ordered_aggregate_is_recomputed_over_the_rows_of_its_group() -> None:
    text = "SELECT t.a, array_agg(t.b ORDER BY t.id) AS l FROM public.t GROUP BY t.a"
    [block] = planned(text, "a l")
    assert isinstance(block, AggregateBlock)
    assert len(block.head.holistic) == 1
    assert {column.name for column in block.head.row_columns} == {"g0", "g1"}
