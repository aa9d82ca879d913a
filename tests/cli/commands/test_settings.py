"""`millstream settings`: what it asks of the API, and what it prints."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Line

from millstream.cli.exit_codes import Exit
from millstream.service.live_settings import SettingInfo

FOUND = [
    SettingInfo(
        "cdc_mode",
        "wal",
        "auto",
        "environment",
        "How changes are captured.",
        "The database has trigger.",
    ),
    SettingInfo("max_lookup_rows", "5", "1000000", "database", "Scan instead."),
]


def test_settings_are_listed_with_value_default_and_origin(line: Line) -> None:
    line.double.answers["settings"] = FOUND
    ended = line("settings")
    assert ended.code == Exit.OK
    for part in (
        "cdc_mode",
        "wal",
        "auto",
        "environment",
        "How changes are captured.",
        "database",
        "1000000",
    ):
        assert part in ended.out
    assert "cdc_mode: The database has trigger." in ended.err
    listed = json.loads(line("settings", "--json").out)
    assert listed[1] == {
        "name": "max_lookup_rows", "value": "5", "default": "1000000", "origin": "database", "meaning": "Scan instead.",
        "note": None,
    }  # fmt: skip


def test_set_and_reset_print_how_the_setting_is_now(line: Line) -> None:
    line.double.answers["settings"] = FOUND
    ended = line("settings", "set", "max_lookup_rows", "5")
    assert line.double.called("set_setting") == [(("max_lookup_rows", "5"), {})]
    assert "max_lookup_rows" in ended.out
    assert "cdc_mode" not in ended.out
    line("settings", "reset", "max_lookup_rows")
    assert line.double.called("reset_setting") == [(("max_lookup_rows",), {})]


@pytest.mark.parametrize(
    "arguments",
    [
        ("set",),
        ("set", "cdc_mode"),
        ("reset",),
        ("reset", "cdc_mode", "wal"),
        ("change", "cdc_mode"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(line: Line, arguments: tuple[str, ...]) -> None:
    assert line("settings", *arguments).code == Exit.USAGE
    assert line.double.called("set_setting") == line.double.called("reset_setting") == []
