"""The block of a recursion: its terms, what each derives a row from, and what is refused."""

from __future__ import annotations

import pytest
from tests.compiler.conftest import planned

from millstream.algebra.block import LEVEL, RecursionBlock
from millstream.errors import Unsupported

TYPES = {'q."c0"': "int4"}


def recursion(step: str, union: str = "UNION") -> RecursionBlock:
    """The block of a recursion that begins with t.a."""
    text = f"WITH RECURSIVE r(n) AS (SELECT t.a FROM public.t {union} {step}) SELECT r.n FROM r"
    block = planned(text, "n", TYPES)[0]
    assert isinstance(block, RecursionBlock)
    return block


STEP = "SELECT u.b FROM public.u JOIN r ON r.n = u.a"


def test_union_stores_rows_and_union_all_the_number_of_steps_too() -> None:
    assert [output.column.name for output in recursion(STEP).outputs] == ["c0"]
    levels = recursion(STEP, "UNION ALL")
    assert [output.column.name for output in levels.outputs] == ["c0", LEVEL]
    assert [term.block.outputs[-1].expr for term in levels.terms] == [
        "(0)::integer",
        '(d."x1" + 1)::integer',
    ]


def test_the_step_names_the_input_that_is_the_recursion_itself() -> None:
    base, step = recursion(STEP).terms
    assert base.itself is None
    assert {one.name: one.of for one in step.block.inputs()}[step.itself or ""] == "block 0"


def test_the_step_of_a_union_carries_the_row_that_it_derives_from() -> None:
    """Otherwise a lost derivation and a new one would cancel."""
    _, step = recursion(STEP).terms
    assert len(step.block.columns) == 2


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (
            "SELECT max(u.b) FROM public.u JOIN r ON r.n = u.a GROUP BY u.a",
            "of the recursive table",
        ),
        (
            "SELECT u.b FROM public.u LEFT JOIN r ON r.n = u.a",
            "reads the recursive table more than once",
        ),
    ],
)
def test_what_depends_on_the_steps_that_are_taken_is_refused(step: str, says: str) -> None:
    with pytest.raises(Unsupported, match=says):
        recursion(step)
