"""Queries that join by conditions that only PostgreSQL can evaluate."""

from __future__ import annotations

from tests.testing.queries.conftest import makers, output_names

from millstream.testing.queries.opaque import _SHAPES, paired


def test_every_shape_and_condition_is_made_and_shows_the_case() -> None:
    parts = set[str]()
    for m in makers(cased=True):
        assert output_names(paired(m))[0] == "cid"
        parts |= m.parts
    assert parts >= {*_SHAPES, "LIKE of columns", "range of columns", "geometry"}
