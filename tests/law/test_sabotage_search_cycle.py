"""Negative controls for SEARCH and CYCLE: rewrite a clause wrongly, and the law must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sqlglot import exp

from millstream.compiler.clauses.recursive import search_cycle
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = pytest.mark.spark

SETUP = """
CREATE TABLE edges (s int, d int, t text);
INSERT INTO edges VALUES (1, 2, 'a'), (2, 3, 'b'), (3, 1, 'a'), (1, 4, 'c'), (4, 4, 'c'), (4, 5, 'b'), (3, 5, 'a')
"""
RECURSIVE = (
    "WITH RECURSIVE r AS (SELECT d AS id, t, 0 AS n FROM edges WHERE s = 1 UNION ALL "
    "SELECT e.d, e.t, r.n + 1 FROM r JOIN edges AS e ON e.s = r.id WHERE r.n < 5) "
)
MARKED = f"{RECURSIVE} CYCLE id SET again USING path SELECT id, t, n, again FROM r"
MARKED_BY_TWO = f"{RECURSIVE} CYCLE id, t SET again USING path SELECT id, t, n, again FROM r"
BY_DEPTH = f"{RECURSIVE} SEARCH DEPTH FIRST BY id SET seq SELECT id, t, rank() OVER (ORDER BY seq) AS k FROM r"
BY_BREADTH = f"{RECURSIVE} SEARCH BREADTH FIRST BY id SET seq SELECT id, t, rank() OVER (ORDER BY seq) AS k FROM r"


def a_cycle_leads_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(search_cycle, "_closes_no_cycle", lambda cycle: exp.true())


def the_way_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    honest = search_cycle._arrays
    patch.setattr(
        search_cycle,
        "_arrays",
        lambda path, by: [replace(one, step=_last(one.step)) for one in honest(path, by)],
    )


def _last(step: str) -> str:
    """array_append(way, value) without the way."""
    return f"array_append(NULL, {step.rpartition(', ')[2]}"


def one_column_alone_closes_a_cycle(patch: pytest.MonkeyPatch) -> None:
    honest = search_cycle._is_on_path
    patch.setattr(search_cycle, "_is_on_path", lambda pairs: honest(pairs[1:]))


def steps_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    honest = search_cycle._breadth
    patch.setattr(
        search_cycle,
        "_breadth",
        lambda seq, by: [
            replace(one, step=one.step.replace(" + 1", "")) for one in honest(seq, by)
        ],
    )


def the_way_is_written_backwards(patch: pytest.MonkeyPatch) -> None:
    honest = search_cycle._interleaved

    def backwards(seq: str, by: list[str]) -> search_cycle._AddedColumn:
        made = honest(seq, by)
        way, value = made.step.removeprefix("array_cat(").removesuffix(")").split(", ", 1)
        return replace(made, step=f"array_cat({value}, {way})")

    patch.setattr(search_cycle, "_interleaved", backwards)


SABOTAGES: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    a_cycle_leads_on: MARKED,
    the_way_is_forgotten: MARKED,
    one_column_alone_closes_a_cycle: MARKED_BY_TWO,
    steps_are_not_counted: BY_BREADTH,
    the_way_is_written_backwards: BY_DEPTH,
}


@pytest.fixture(scope="module")
def edges(module_law: Law) -> Law:
    module_law.change(SETUP)
    return module_law


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda one: one.__name__)
def test_the_law_notices(
    sabotage: Callable[[pytest.MonkeyPatch], None], edges: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = SABOTAGES[sabotage]
    with monkeypatch.context() as patch:
        sabotage(patch)
        with pytest.raises((AssertionError, MillstreamError), match="differs from its query"):
            edges.create(sabotage.__name__, query)
    edges.create(sabotage.__name__, query)
