"""Queries whose expressions raise errors for rows that their joins discard."""

from __future__ import annotations

from sqlglot import exp
from tests.testing.queries.conftest import makers, output_names

from millstream.algebra.dialect import parsed
from millstream.testing.queries.discarded import _RAISING, discarding
from millstream.testing.randomness import KINDS


def test_two_tables_are_joined_by_case_and_the_case_is_shown_first() -> None:
    for m in makers(cased=True):
        text = discarding(m)
        assert output_names(text)[0] == "cid"
        tables = {table.name for table in parsed(text).find_all(exp.Table) if table.name != "q"}
        assert len(tables) >= 2
        assert ".cid = " in text


def test_every_shape_is_made() -> None:
    parts = {part for m in makers(cased=True) if discarding(m) for part in m.parts}
    assert {
        "grouped",
        "each once",
        "condition",
        "asked",
        "optional",
        "united",
        "counted once",
    } <= parts


def test_expressions_that_raise_have_known_kinds() -> None:
    assert _RAISING.keys() <= KINDS.keys()
    assert all(kind in KINDS for choices in _RAISING.values() for _, kind in choices)
