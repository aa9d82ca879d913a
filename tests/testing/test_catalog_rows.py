"""Rows of the catalog made by hand."""

from __future__ import annotations

import pytest

from millstream.testing.catalog_rows import stream_table


def test_fields_that_are_given_are_set_and_the_table_has_an_oid_of_its_own() -> None:
    made = stream_table(7, schedule="5m", status="SUSPENDED")
    assert (made.id, made.relid, made.schedule, made.status) == (7, 7, "5m", "SUSPENDED")
    assert stream_table(7, relid=None).relid is None


def test_a_field_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError):
        stream_table(7, colour="red")
