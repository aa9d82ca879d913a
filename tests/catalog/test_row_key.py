"""The key of a stream table's rows, as it was recorded: a plan made later may not come with
another.
"""

from __future__ import annotations

import json

import pytest

from millstream.algebra.block import Key
from millstream.catalog.row_key import RowKey
from millstream.errors import SourceChanged

BY_ID = RowKey(Key("columns", ("id", "day")), {7: ("id",), 8: ("day",)})


def test_what_is_recorded_is_read_back() -> None:
    assert RowKey.of(json.loads(json.dumps(BY_ID.as_dict()))) == BY_ID


def test_a_plan_that_derives_the_same_key_keeps_it() -> None:
    assert BY_ID.materialized("totals", Key("columns", ("id", "day"))) == BY_ID.key


def test_a_key_whose_columns_may_be_null_now_is_nullable() -> None:
    assert BY_ID.materialized("totals", Key("columns", ("id", "day"), nullable=True)).nullable


@pytest.mark.parametrize("derived", [Key("columns", ("id",)), Key("row_id")])
def test_a_plan_with_another_key_is_refused(derived: Key) -> None:
    with pytest.raises(SourceChanged, match="no longer identifies its rows"):
        BY_ID.materialized("totals", derived)


def test_a_recorded_row_id_is_kept_for_any_derived_key() -> None:
    """A source may have got a primary key since."""
    by_row_id = RowKey(Key("row_id"))
    assert by_row_id.materialized("totals", Key("columns", ("id",))) == by_row_id.key


def test_the_columns_of_the_index_are_in_one_order() -> None:
    assert BY_ID.indexed() == "day\nid"
    assert RowKey(Key("row_id")).indexed() == "__ms_row_id"
