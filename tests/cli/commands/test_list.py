"""`millstream list`: what it asks of the API, and what it prints."""

from __future__ import annotations

import json

from tests.cli.conftest import Line, status


def test_the_database_of_the_option_wins_over_the_environment(line: Line) -> None:
    line.double.answers["status"] = []
    line("list", "--dsn", "postgresql://other/d")
    assert line.double.called("connect") == [(("postgresql://other/d",), {})]
    assert line.double.calls[-1][0] == "close"


def test_list_prints_a_table_or_json(line: Line) -> None:
    line.double.answers["status"] = [status(), status(name="other", status="SUSPENDED")]
    out = line("list").out
    assert "totals" in out
    assert "SUSPENDED" in out
    assert [one["name"] for one in json.loads(line("list", "--json").out)] == ["totals", "other"]


def test_an_empty_list_shows_how_to_create_a_stream_table(line: Line) -> None:
    line.double.answers["status"] = []
    assert "millstream create" in line("list").out
    assert json.loads(line("list", "--json").out) == []
