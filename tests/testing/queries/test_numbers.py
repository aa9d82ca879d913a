"""Queries with arithmetic of numerics across tables."""

from __future__ import annotations

from tests.testing.queries.conftest import makers, output_names

from millstream.testing.queries.numbers import _SHAPES, numbered


def test_two_tables_are_joined_by_case_and_the_case_is_shown_first() -> None:
    for m in makers(cased=True):
        text = numbered(m)
        assert output_names(text)[0] == "cid"
        assert ".cid = " in text


def test_every_shape_is_made_and_numbers_that_spark_has_not_are_compared_with() -> None:
    parts, texts = set[str](), list[str]()
    for m in makers(cased=True):
        texts += [numbered(m) for _ in range(3)]
        parts |= m.parts
    assert parts >= _SHAPES.keys()
    assert any("'NaN'::numeric" in text for text in texts)
    assert any("1e200" in text for text in texts)
