"""The verb alter: all that is given is changed, or nothing. Another query: `test_redefine.py`."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import Millstream
from millstream.errors import BadSetting, NoSuchStreamTable


def test_only_what_is_given_is_changed(unfilled: Millstream) -> None:
    assert unfilled.alter_stream_table("totals", schedule="10m") is None
    unfilled.alter_stream_table("totals", refresh_mode="FULL", status="SUSPENDED")
    [now] = unfilled.status()
    assert (now.schedule, now.refresh_mode, now.status) == ("10m", "FULL", "SUSPENDED")
    unfilled.alter_stream_table("totals", status="ACTIVE")
    [now] = unfilled.status()
    assert (now.schedule, now.refresh_mode, now.status) == ("10m", "FULL", "ACTIVE")


BAD: list[dict[str, Any]] = [
    {"schedule": "soon"},
    {"refresh_mode": "never"},
    {"status": "ERROR"},
    {"cdc_mode": "magic"},
]


def test_where_one_value_is_bad_nothing_is_changed(unfilled: Millstream) -> None:
    before = unfilled.status()
    for bad in BAD:
        with pytest.raises(BadSetting):
            unfilled.alter_stream_table("totals", **{"schedule": "10m", **bad})
    with pytest.raises(NoSuchStreamTable):
        unfilled.alter_stream_table("nosuch", schedule="10m")
    assert unfilled.status() == before
