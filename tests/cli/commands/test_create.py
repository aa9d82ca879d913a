"""`millstream create`: where the query comes from, what is handed over, what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Line, report

from millstream.cli.exit_codes import Exit


def test_create_passes_its_arguments_to_the_api(line: Line) -> None:
    line.double.answers["create_stream_table"] = report(action="FULL", reason="initial")
    options = (
        "--schedule",
        "5m",
        "--mode",
        "differential",
        "--no-initialize",
        "--cdc-mode",
        "wal",
        "--owner",
        "me",
        "--set",
        "TimeZone=Europe/Berlin",
        "--set",
        "DateStyle=ISO, DMY",
        "--assume-immutable",
        "shop.f(integer)",
    )
    ended = line("create", "shop.totals", "SELECT 1", *options)
    given = {
        "schedule": "5m",
        "refresh_mode": "DIFFERENTIAL",
        "initialize": False,
        "cdc_mode": "wal",
        "owner": "me",
        "settings": {"TimeZone": "Europe/Berlin", "DateStyle": "ISO, DMY"},
        "assume_immutable": ["shop.f(integer)"],
    }
    assert line.double.called("create_stream_table") == [(("shop.totals", "SELECT 1"), given)]
    assert ended.out.startswith("shop.totals is created. FULL: 1,234 rows read, 1 inserted")


def test_create_without_initializing_says_what_comes_next(line: Line) -> None:
    assert (
        line("create", "t", "SELECT 1", "--no-initialize").out
        == "t is created; its first refresh fills it.\n"
    )


def test_create_reads_the_query_from_stdin_or_from_a_file(line: Line, tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text("SELECT 2")
    line("create", "a", "-", stdin="SELECT 1")
    line("create", "b", "--file", str(tmp_path / "query.sql"))
    assert [given for given, _ in line.double.called("create_stream_table")] == [
        ("a", "SELECT 1"),
        ("b", "SELECT 2"),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "t"),
        ("create", "t", "SELECT 1", "--file", "q.sql"),
        ("create", "t", "--file", "nowhere"),
    ],
)
def test_create_needs_the_query_from_one_place_that_is_there(
    line: Line, arguments: tuple[str, ...]
) -> None:
    assert line(*arguments).code == Exit.USAGE
    assert line.double.called("create_stream_table") == []


@pytest.mark.parametrize(
    ("arguments", "told", "not_told"),
    [
        (("t", "SELECT 1", "--mode", "often"), "'often' is not one of", "Value error"),
        (("t", "--file", "nowhere"), "No such file or directory", "Errno"),
    ],
)
def test_a_bad_value_is_told_in_words_of_ours(
    line: Line, arguments: tuple[str, ...], told: str, not_told: str
) -> None:
    ended = line("create", *arguments)
    assert ended.code == Exit.USAGE
    assert told in ended.err
    assert not_told not in ended.err


def test_a_file_that_is_no_text_is_no_query(line: Line, tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_bytes(b"\xff\xfe")
    assert "it is not UTF-8" in line("create", "t", "--file", str(tmp_path / "query.sql")).err
