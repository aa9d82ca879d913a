"""Keys, measures and conditions of groups."""

from __future__ import annotations

from sqlglot import exp
from tests.testing.queries.conftest import aliases_of, expression, makers, source_of

from millstream.testing.queries.groups import grouping, having, keys, measure
from millstream.testing.randomness import COMPARED

# Aggregates that the parser does not know as such.
OTHERS = ("bit_or", "bool_and", "var_pop", "percentile_disc", "array_agg", "string_agg")


def aggregates(text: str) -> bool:
    return expression(text).find(exp.AggFunc) is not None or any(name in text for name in OTHERS)


def test_keys_are_of_kinds_that_can_be_compared_and_each_is_there_once() -> None:
    for m in makers():
        found = keys(m, source_of(m))
        assert len(set(found)) == len(found) <= 3
        assert all(key.kind in COMPARED for key in found)


def test_measures_and_conditions_are_over_groups() -> None:
    for m in makers():
        source = source_of(m)
        for text in (measure(m, source), having(m, source)):
            assert aggregates(text), text
            assert aliases_of(text) <= {item.alias for item in source.items}


def test_every_key_is_in_some_grouping_set() -> None:
    for m in makers():
        text = grouping(m, ["a.j", "a.h"])
        assert "a.j" in text
        assert "a.h" in text
