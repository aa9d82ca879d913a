"""Queries whose expressions raise errors for rows that LIMIT, or a filter further out, leaves out."""

from __future__ import annotations

from tests.testing.queries.conftest import makers, output_names

from millstream.testing.queries.left_out import _SHAPES, leaving_out


def test_rows_with_negative_cases_come_last_or_are_filtered_out() -> None:
    for m in makers(cased=True):
        text = leaving_out(m)
        assert output_names(text)[0] == "cid"
        assert "cid > 0" in text or ("cid DESC" in text and " LIMIT " in text)


def test_every_shape_is_made() -> None:
    parts = set[str]()
    for m in makers(cased=True):
        leaving_out(m)
        parts |= m.parts
    assert parts >= _SHAPES.keys()
